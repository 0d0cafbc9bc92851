import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { connect, type Agent } from "@agent-reach/client/node";
import type { Browser, Page } from "playwright-core";

import { browser, isLive, open, visitor } from "./console.ts";
import { Hub } from "./hub.ts";

let hub: Hub;
let chromium: Browser;
let observer: Agent;

before(async () => {
  hub = await Hub.start();
  chromium = await browser();
  observer = await hub.agent("observer");
});
after(async () => {
  await chromium.close();
  await hub.stop();
});

/** The windows that the hub knows, sorted. */
async function windows(): Promise<string[]> {
  const { agents } = await observer.call<{ agents: { agent_id: string }[] }>("hub.agents.list", {});
  return agents.map((agent) => agent.agent_id).filter((id) => id.startsWith("ops/"));
}

const row = (page: Page, text: string) => page.getByRole("row").filter({ hasText: text });

test("two windows of one login are live side by side, and a reload replaces only itself", async () => {
  const context = await visitor(chromium, hub);
  const first = await open(context, hub.operator, "#/agents");
  const second = await context.newPage();
  await second.goto("/#/agents");
  await isLive(second);
  const both = await windows();
  assert.equal(both.length, 2);
  await hub.agent("one");
  for (const page of [first, second]) await row(page, "one").waitFor();
  await second.reload();
  await isLive(second);
  assert.deepEqual(await windows(), both, "it is the window that it was");
  await hub.agent("two");
  for (const page of [first, second]) await row(page, "two").waitFor();
  // Events came to the first one all the time: it is the same session.
  await isLive(first);
  await context.close();
});

test("a window that begins with what another one's browser storage holds is another one", async () => {
  const context = await visitor(chromium, hub);
  const first = await open(context, hub.operator, "#/agents");
  const [copy] = await Promise.all([first.waitForEvent("popup"), first.evaluate(() => void window.open(location.href))]);
  await isLive(copy);
  await hub.agent("three");
  for (const page of [first, copy]) await row(page, "three").waitFor();
  await isLive(first);
  assert.equal(new Set(await windows()).size, (await windows()).length);
  await context.close();
});

test("a window too many is told so, and takes a place that becomes free", async () => {
  const held: Agent[] = [];
  const url = hub.origin.replace("http", "ws");
  for (let n = 0; n < 16; n += 1)
    held.push(await connect({ url, agentId: `eve/held-${n}`, token: hub.viewer, log: () => undefined }));
  const context = await visitor(chromium, hub);
  const page = await context.newPage();
  await page.goto("/");
  await page.getByLabel("Token").fill(hub.viewer);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText(/token:eve has 16 windows, which is the limit/).waitFor();
  await held.pop()?.close(0);
  await page.getByRole("button", { name: "Connect again" }).click();
  await isLive(page);
  await Promise.all(held.map((agent) => agent.close(0)));
  await context.close();
});
