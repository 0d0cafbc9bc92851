import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import type { Browser, BrowserContext, Page } from "playwright-core";

import { act, cast, MARKUP, type Cast } from "./cast.ts";
import { browser, complaints, open, visitor } from "./console.ts";
import { Hub } from "./hub.ts";

let hub: Hub;
let chromium: Browser;
let all: Cast;
let context: BrowserContext;
let page: Page;
let said: string[];

before(async () => {
  hub = await Hub.start();
  chromium = await browser();
  all = await cast(hub);
  context = await visitor(chromium, hub);
  page = await open(context, hub.operator);
  said = complaints(page);
});
after(async () => {
  all.release();
  await chromium.close();
  await hub.stop();
});

const row = (text: string): ReturnType<Page["locator"]> => page.getByRole("row").filter({ hasText: text });

test("the overview tells connections, calls and errors by code", async () => {
  await page.goto("/#/overview");
  await act(all);
  const connections = page.locator(".tile", { hasText: "Connections" });
  await connections.getByText("6", { exact: true }).waitFor();
  const errors = page.locator(".panel", { has: page.getByRole("heading", { name: "Errors by code" }) });
  await errors.getByRole("link", { name: "handler_error" }).waitFor();
  await page.locator(".panel", { hasText: "Busiest capabilities" }).getByRole("link", { name: "text.summarize" }).waitFor();
});

test("the overview has the hub's own figures of phases, of breakers and of its memory", async () => {
  await page.goto("/#/overview");
  await act(all);
  const phases = page.locator(".panel", { hasText: "Phases and routing" });
  await phases.getByRole("row", { name: /^total .*\d+ (µs|ms)/ }).waitFor();
  const held = page.locator(".panel", { has: page.getByRole("heading", { name: "Breakers" }) });
  await held.getByText("All are closed.").waitFor();
  await page.locator(".tile", { hasText: "Memory per connection" }).getByText(/\d MiB in all/).waitFor();
});

test("a call that is refused before it is one is in the tail, with its code and its trace", async () => {
  await page.goto("/#/calls?q=audio.transcribe");
  await all.planner.call("audio.transcribe", {}).catch(() => undefined);
  await row("audio.transcribe").first().getByText("no_capability").waitFor();
  await row("audio.transcribe").first().click();
  await page.getByText("refused at once").waitFor();
  await page.getByRole("cell", { name: "Ended" }).waitFor();
});

test("an agent appears when it connects, and is gone when it leaves", async () => {
  await page.goto("/#/agents");
  await row("summarizer-1").waitFor();
  const visitor = await hub.agent("passer-by");
  await row("passer-by").waitFor();
  await visitor.close(0);
  await row("passer-by").waitFor({ state: "detached" });
});

test("a search and a status narrow the list of agents, and stay in the address", async () => {
  await page.goto("/#/agents");
  await page.getByRole("searchbox").fill("region=eu-1 text");
  await row("summarizer-1").waitFor();
  await row("writer-1").waitFor({ state: "detached" });
  assert.match(page.url(), /#\/agents\?q=region%3Deu-1\+text$/);
  await page.getByRole("searchbox").fill("");
  await page.getByRole("button", { name: "suspect" }).click();
  await page.getByText("No agent matches").waitFor();
});

test("an agent's page tells what it offers, what it has and what it did", async () => {
  const task = all.planner.submit("report.build", null);
  await task;
  await page.goto("/#/agents/writer-1");
  const open = page.locator(".panel", { has: page.getByRole("heading", { name: /^Open calls/ }) });
  await open.getByText("report.build").waitFor();
  await page.getByRole("link", { name: "story.write" }).first().waitFor();
  await page.getByText("Writes a story, piece by piece").waitFor();
  await page.locator(".plot canvas").first().waitFor();
});

test("an operator disconnects an agent, after a question", async () => {
  let lost = (): void => undefined;
  const isLost = new Promise<void>((resolve) => (lost = resolve));
  await hub.agent("victim", {
    log(_, text) {
      if (text.startsWith("not connected")) lost();
    },
  });
  await page.goto("/#/agents/victim");
  await page.getByRole("button", { name: "Disconnect" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Disconnect" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await isLost;
});

test("an operator drains an agent, and gives it back to work", async () => {
  await page.goto("/#/agents/trickster");
  await page.getByRole("button", { name: "Drain" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  await page.locator(".facts").getByText("draining").waitFor();
  await page.getByText("by an operator").waitFor();
  await page.getByRole("button", { name: "Give back to work" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Give back to work" }).click();
  await page.locator(".facts").getByText("ready").waitFor();
});

test("the form of a schema makes a call, and its answer is shown", async () => {
  await page.goto("/#/capabilities");
  await row("text.summarize").click();
  await page.getByRole("textbox", { name: /^text/ }).fill("what a long text");
  await page.getByLabel("language").selectOption("de");
  const value = JSON.stringify({ text: "what a long text", language: "de" }, undefined, 2);
  await page.waitForFunction((text) => document.querySelector<HTMLTextAreaElement>("#raw-json")?.value === text, value);
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.getByText("completed").waitFor();
  await page.locator("pre.result", { hasText: '"summary": "what a long text"' }).waitFor();
});

test("raw JSON beside the form is the same value", async () => {
  await page.goto("/#/capabilities/text.summarize");
  await page.getByLabel("JSON", { exact: true }).fill('{"text": "by hand", "words": 3}');
  await page.getByRole("textbox", { name: /^text/ }).waitFor();
  assert.equal(await page.getByRole("textbox", { name: /^text/ }).inputValue(), "by hand");
  await page.getByLabel("JSON", { exact: true }).fill('{"text": ');
  await page.getByRole("alert").waitFor();
  assert.equal(await page.getByRole("button", { name: "Call", exact: true }).isDisabled(), true);
});

test("what the hub refuses is told with its code and its words", async () => {
  await page.goto("/#/capabilities/text.summarize");
  await page.getByLabel("JSON", { exact: true }).fill('{"text": 7}');
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.getByText("schema_mismatch", { exact: true }).waitFor();
  await page.locator("pre.result", { hasText: "/text" }).waitFor();
});

test("a stream's pieces are shown as they come, and a cancel ends it", async () => {
  await page.goto("/#/capabilities/story.write");
  await page.getByLabel("stream").check();
  await page.getByLabel("JSON", { exact: true }).fill('{"pieces": 1000000}');
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.locator(".pieces li", { hasText: "of a story" }).first().waitFor();
  await page.getByText("running").waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByText("cancelled", { exact: true }).waitFor();
});

test("failed calls stand first, and one of them is told step by step", async () => {
  await page.goto("/#/calls");
  await act(all, 8);
  const first = page.locator(".t-calls .rows .row").first();
  await first.getByText("handler_error").waitFor();
  await first.click();
  await page.getByRole("cell", { name: "Routed" }).waitFor();
  await page.getByText("1 of 1 able").waitFor();
  await page.getByRole("cell", { name: "Answered" }).waitFor();
  await page.getByRole("cell", { name: "Ended" }).waitFor();
});

test("the tail narrows to what is asked for", async () => {
  await page.goto("/#/calls");
  await act(all, 4);
  await page.getByRole("button", { name: "failed" }).click();
  await row("image.classify").first().waitFor();
  await row("image.caption").first().waitFor({ state: "detached" });
  await page.getByRole("searchbox").fill("nothing like it");
  await page.getByText("No call matches").waitFor();
});

test("a task is listed by its state, and its page has its result", async () => {
  const done = all.planner.submit("text.summarize", { text: "a task" });
  await (await done).result();
  await page.goto("/#/tasks");
  await row("report.build").first().getByText("processing").waitFor();
  await page.getByRole("button", { name: "succeeded" }).click();
  await row("text.summarize").first().click();
  // The list says it too, on the button and in the row, until the page of the task is there.
  await page.locator(".facts").getByText("succeeded").waitFor();
  await page.getByText("planner-1").first().waitFor();
});

test("what agents say never becomes markup", async () => {
  const places = ["overview", "agents", "agents/trickster", "capabilities", "capabilities/image.classify", "calls", "tasks"];
  for (const place of places) {
    await page.goto(`/#/${place}`);
    await act(all, 5);
    await page.locator("main").filter({ hasText: /\S/ }).waitFor();
  }
  await page.goto("/#/agents/trickster");
  await page.getByText(MARKUP).first().waitFor();
  await page.goto("/#/capabilities/image.classify");
  await page.getByText(MARKUP).first().waitFor();
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.getByText("handler_error").first().waitFor();
  await page.locator("p.wrong", { hasText: "<script>" }).waitFor();
  assert.equal(await page.evaluate(() => (globalThis as { __x?: number }).__x), undefined);
  assert.equal(await page.locator("img, main script").count(), 0);
});

test("no page complained, and none asked for anything from elsewhere", () => {
  assert.deepEqual(said, []);
});
