import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import type { Browser } from "playwright-core";

import { browser, isLive, open, visitor } from "./console.ts";
import { Hub } from "./hub.ts";

let hub: Hub;
let chromium: Browser;

before(async () => {
  hub = await Hub.start();
  chromium = await browser();
});
after(async () => {
  await chromium.close();
  await hub.stop();
});

test("a page whose hub is silent says that what it shows is old, and mends itself", async () => {
  const page = await open(await visitor(chromium, hub), hub.operator, "#/overview");
  await page.getByText("Connections").first().waitFor();
  hub.freeze(true);
  try {
    await page.getByText(/^The hub has not answered for|^Disconnected for/).waitFor();
  } finally {
    hub.freeze(false);
  }
  await isLive(page);
  await page.getByText(/^The hub has not answered for|^Disconnected for/).waitFor({ state: "detached" });
});

test("a page says that its hub is gone, and is whole again after a restart", async () => {
  const worker = await hub.agent("worker");
  worker.provide("work", () => "done");
  await worker.sync();
  const page = await open(await visitor(chromium, hub), hub.operator, "#/agents");
  const row = page.getByRole("row").filter({ hasText: "worker" });
  await row.waitFor();
  await hub.kill();
  await page.getByText(/^Disconnected for/).waitFor();
  await page.getByRole("status", { name: "Connection" }).getByText("disconnected").waitFor();
  await row.waitFor();
  await hub.restart();
  // Sessions outlive the hub's process: nobody says a token again.
  await isLive(page);
  await row.waitFor();
  assert.match(page.url(), /#\/agents$/);
  assert.equal(await page.getByText(/^Disconnected/).count(), 0);
});
