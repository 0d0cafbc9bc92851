import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import type { Browser, Page } from "playwright-core";

import { findings } from "./axe.ts";
import { act, cast, type Cast } from "./cast.ts";
import { browser, open, screenshot, visitor } from "./console.ts";
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

/** Each page with what it shows when it is ready. */
const PAGES: [string, string, (page: Page) => Promise<void>][] = [
  ["overview", "#/overview", (page) => page.locator(".plot canvas").nth(3).waitFor()],
  ["agents", "#/agents", (page) => page.getByRole("row").filter({ hasText: "writer-1" }).waitFor()],
  ["agent", "#/agents/writer-1", (page) => page.locator(".plot canvas").nth(1).waitFor()],
  ["capabilities", "#/capabilities", (page) => page.getByRole("row").filter({ hasText: "story.write" }).waitFor()],
  ["capability", "#/capabilities/text.summarize", (page) => page.getByRole("button", { name: "Call", exact: true }).waitFor()],
  ["calls", "#/calls", (page) => page.locator(".t-calls .rows .row").nth(5).waitFor()],
  ["tasks", "#/tasks", (page) => page.getByRole("row").filter({ hasText: "report.build" }).first().waitFor()],
];

/** Opens the newest call that failed. */
async function failedCall(page: Page): Promise<void> {
  await page.goto("/#/calls?show=failed");
  await page.locator(".t-calls .rows .row").first().click();
  await page.getByRole("cell", { name: "Ended" }).waitFor();
}

for (const colorScheme of ["light", "dark"] as const) {
  test(`axe has no serious finding on any page, ${colorScheme}`, async () => {
    const context = await visitor(chromium, hub, { colorScheme });
    const login = await context.newPage();
    await login.goto("/");
    await login.getByLabel("Token").waitFor();
    const found = (await findings(login)).map((one) => `login: ${one}`);
    const page = await open(context, hub.operator);
    const task = await all.planner.submit("report.build", null);
    task.result().catch(() => undefined);
    const shot = async (name: string): Promise<void> => {
      found.push(...(await findings(page)).map((one) => `${name}: ${one}`));
      await page.screenshot({ path: screenshot(`${name}-${colorScheme}`) });
    };
    for (const [name, hash, ready] of PAGES) {
      await page.goto(`/${hash}`);
      await act(all, 10);
      await ready(page);
      await shot(name);
    }
    await failedCall(page);
    await shot("call");
    await page.goto(`/#/tasks/${task.id}`);
    await page.getByText("processing").waitFor();
    await shot("task");
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await shot("keys");
    assert.deepEqual(found, []);
  });
}

test("no page is wider than a phone", async () => {
  const page = await open(await visitor(chromium, hub, { viewport: { width: 390, height: 844 } }), hub.operator);
  const task = await all.planner.submit("report.build", null);
  task.result().catch(() => undefined);
  const wide: string[] = [];
  const look = async (name: string): Promise<void> => {
    const width = await page.evaluate(() => Math.max(document.documentElement.scrollWidth, document.querySelector("main")?.scrollWidth ?? 0));
    if (width > 390) wide.push(`${name}: ${width}`);
    await page.screenshot({ path: screenshot(`${name}-phone`) });
  };
  for (const [name, hash, ready] of PAGES) {
    await page.goto(`/${hash}`);
    await act(all, 10);
    await ready(page);
    await look(name);
  }
  await failedCall(page);
  await look("call");
  assert.deepEqual(wide, []);
});

test("the theme is the system's until somebody chooses, and stays chosen", async () => {
  const context = await visitor(chromium, hub, { colorScheme: "dark" });
  const page = await open(context, hub.operator);
  const theme = (): Promise<string | undefined> => page.evaluate(() => document.documentElement.dataset["theme"]);
  assert.equal(await theme(), "dark");
  await page.getByRole("button", { name: "Use the light theme" }).click();
  await page.getByRole("button", { name: "Use the dark theme" }).waitFor();
  assert.equal(await theme(), "light");
  await page.reload();
  await page.getByRole("button", { name: "Use the dark theme" }).waitFor();
  assert.equal(await theme(), "light");
});

test("keys search, walk, open, go back, go to pages and are told", async () => {
  const page = await open(await visitor(chromium, hub), hub.operator, "#/agents");
  await page.getByRole("row").filter({ hasText: "writer-1" }).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("summarizer");
  await page.getByRole("row").filter({ hasText: "writer-1" }).waitFor({ state: "detached" });
  await page.keyboard.press("Escape");
  for (const key of ["j", "j", "k", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  await page.waitForURL(/#\/agents\/summarizer-2$/);
  // The address is there before the page.
  await page.locator("a[data-up]").waitFor();
  await page.keyboard.press("Escape");
  await page.waitForURL(/#\/agents(\?|$)/);
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await page.waitForURL(/#\/tasks$/);
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("search on this page").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.match(page.url(), /#\/tasks$/);
});
