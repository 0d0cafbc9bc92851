import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { CallError, connect } from "@agent-reach/client/node";
import type { Browser } from "playwright-core";

import { act, cast, type Cast } from "./cast.ts";
import { browser, isLive, open, visitor } from "./console.ts";
import { Hub } from "./hub.ts";

let hub: Hub;
let chromium: Browser;
let all: Cast;

before(async () => {
  hub = await Hub.start();
  chromium = await browser();
  all = await cast(hub);
});
after(async () => {
  all.release();
  await chromium.close();
  await hub.stop();
});

test("a viewer sees everything, and no button that changes something", async () => {
  const page = await open(await visitor(chromium, hub), hub.viewer);
  await page.getByText("viewer", { exact: true }).waitFor();
  await act(all, 4);
  await page.goto("/#/agents/writer-1");
  await page.getByText("Writes a story, piece by piece").waitFor();
  assert.equal(await page.getByRole("button", { name: /Disconnect|Drain/ }).count(), 0);
  await page.goto("/#/capabilities/text.summarize");
  await page.getByText("Calling is for operators").waitFor();
  assert.equal(await page.getByRole("button", { name: "Call", exact: true }).count(), 0);
  await page.goto("/#/calls");
  await page.locator(".t-calls .rows .row").first().click();
  await page.getByRole("cell", { name: "Routed" }).waitFor();
});

test("the hub refuses a viewer what the page does not offer", async () => {
  const eve = await connect({ url: hub.origin.replace("http", "ws"), agentId: "eve", token: hub.viewer, log: () => undefined });
  const refused = (error: unknown): boolean => error instanceof CallError && error.code === "unauthorized";
  await assert.rejects(eve.call("hub.agents.disconnect", { agent_id: "writer-1" }).reply(), refused);
  await assert.rejects(eve.call("hub.agents.drain", { agent_id: "writer-1" }).reply(), refused);
  await assert.rejects(eve.call("hub.tasks.retry", { task_id: "none" }).reply(), refused);
  await assert.rejects(eve.call("text.summarize", { text: "no" }).reply(), refused);
  await eve.close(0);
});

test("an operator cancels somebody else's task", async () => {
  const task = await all.planner.submit("report.build", null);
  task.result().catch(() => undefined);
  const page = await open(await visitor(chromium, hub), hub.operator, `#/tasks/${task.id}`);
  await page.getByRole("button", { name: "Cancel task" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel task" }).click();
  await page.getByRole("heading", { name: "Why it failed" }).waitFor();
  await page.getByText("cancelled", { exact: true }).first().waitFor();
});

test("an operator has a failed task of somebody else run again, and is on the new one's page", async () => {
  const task = await all.planner.submit("image.classify", {});
  await task.result().catch(() => undefined);
  const watching = await open(await visitor(chromium, hub), hub.viewer, `#/tasks/${task.id}`);
  await watching.getByText("No such task").waitFor();
  assert.equal(await watching.getByRole("button", { name: "Run again" }).count(), 0);
  const page = await open(await visitor(chromium, hub), hub.operator, `#/tasks/${task.id}`);
  await page.getByRole("button", { name: "Run again" }).click();
  await page.getByRole("dialog").getByText("may happen twice").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Run again" }).click();
  await page.getByText("Made again of").waitFor();
  await page.getByRole("link", { name: task.id, exact: true }).waitFor();
  assert.doesNotMatch(page.url(), new RegExp(task.id));
  await page.getByRole("heading", { name: "Why it failed" }).waitFor();
});

test("a wrong token opens nothing, and who logs out is out", async () => {
  const page = await (await visitor(chromium, hub)).newPage();
  await page.goto("/#/agents");
  await page.getByLabel("Token").fill("not a token");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("This is not a token of this hub.").waitFor();
  await page.getByLabel("Token").fill(hub.operator);
  await page.getByRole("button", { name: "Log in" }).click();
  await isLive(page);
  await page.getByRole("row").filter({ hasText: "writer-1" }).waitFor();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Token").waitFor();
  await page.reload();
  await page.getByLabel("Token").waitFor();
  assert.equal(await page.getByText("writer-1").count(), 0);
});
