import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import type { Browser, Page } from "playwright-core";

import type { Agent } from "../../src/node.js";
import { signalled } from "../support/signal.js";
import { BarePage } from "./bare.js";
import { chromiumPath, startChromium } from "./chromium.mjs";
import { PageHub, SUSPICIOUS } from "./hub.js";
import { Site, type Client } from "./site.js";

declare global {
  interface Window {
    client: Client;
    agent: Agent;
  }
}

const path = chromiumPath();
if (path === undefined) console.log("Chromium is not there: nothing was tried in a browser (make tools, or CHROMIUM)");
else pages(path);

function pages(executable: string): void {
  let browser: Browser;
  let site: Site;
  let hub: PageHub;
  let provider: Agent;

  const ends: (() => unknown)[] = [];

  before(async () => {
    browser = await startChromium(executable);
    ends.push(() => browser.close());
    site = await Site.start();
    ends.push(() => site.close());
    hub = await PageHub.start(site.origin);
    ends.push(() => hub.stop());
    provider = await hub.agent("provider");
    await provider.provide("echo", (ctx) => ctx.input).sync();
  });
  after(() => Promise.all(ends.map((end) => end())));

  /** A page of its own, with `window.agent` connected. */
  async function opened(reconnectMs: [number, number] = [50, 200]): Promise<Page> {
    const page = await (await browser.newContext()).newPage();
    await page.goto(site.origin);
    await page.evaluate(
      async ([url, reconnectMs]) => {
        window.agent = await window.client.connect({ url, agentId: "alice", reconnectMs, log: () => {} });
      },
      [site.relayTo(hub), reconnectMs] as const,
    );
    return page;
  }

  test("PAIR-1 in a page values come back as they were: integers of 64 bits, bytes, text, times", async () => {
    const page = await opened();
    const answers = await page.evaluate(async () => {
      const { Ext, Timestamp } = window.client;
      const text = "a\0\u{1F680}\u00e9";
      const big = new Uint8Array(300_000).map((_, i) => i);
      const agent = window.agent;
      const bytes = await agent.call<Uint8Array>("echo", big);
      const ext = await agent.call<InstanceType<typeof Ext>>("echo", new Ext(7, new Uint8Array([1, 2])));
      const time = await agent.call<Date>("echo", new Timestamp(1n, 5));
      return {
        most: (await agent.call("echo", 2n ** 64n - 1n)) === 2n ** 64n - 1n,
        least: (await agent.call("echo", -(2n ** 63n))) === -(2n ** 63n),
        small: await agent.call("echo", { n: 7, f: 0.5, list: [null, true] }),
        text: (await agent.call("echo", text)) === text,
        bytes: bytes instanceof Uint8Array && bytes.length === big.length && bytes.every((byte, i) => byte === big[i]),
        ext: ext instanceof Ext && ext.type === 7 && ext.data[1] === 2,
        time: time instanceof Timestamp && time.nanoseconds === 5,
      };
    });
    const small = { n: 7, f: 0.5, list: [null, true] };
    assert.deepEqual(answers, { most: true, least: true, small, text: true, bytes: true, ext: true, time: true });
    await page.context().close();
  });

  test("STREAM-1 CALL-8 a page streams through its window, and an AbortSignal of its own cancels the handler", async () => {
    const cancelled = signalled();
    await provider
      .provide("count", async function* (ctx: { input: number }) {
        for (let i = 0; i < ctx.input; i++) yield i;
        return ctx.input;
      })
      .provide("wait", (ctx) => new Promise(() => ctx.signal.addEventListener("abort", cancelled.now)))
      .sync();
    const page = await opened();
    const [sum, end] = await page.evaluate(async () => {
      const story = window.agent.stream<number, number>("count", 500, { window: 7 });
      let sum = 0;
      for await (const n of story) sum += n;
      return [sum, await story.result()] as const;
    });
    assert.deepEqual([sum, end], [(500 * 499) / 2, 500]);
    const begun = page.evaluate(async () => {
      const abort = new AbortController();
      const pending = window.agent.call("wait", null, { signal: abort.signal });
      await pending.accepted();
      abort.abort();
      return pending.then(
        () => "no error",
        (error: unknown) => (error as { code: string }).code,
      );
    });
    assert.equal(await begun, "cancelled");
    await cancelled.promise;
    await page.context().close();
  });

  test("RESUME-5 a page's open call ends with its result after the hub was killed and started again", async () => {
    const [begun, go] = [signalled(), signalled()];
    let runs = 0;
    await provider
      .provide("slow", async () => {
        runs += 1;
        begun.now();
        await go.promise;
        return "done";
      })
      .sync();
    const page = await opened();
    const answer = page.evaluate(() => window.agent.call<string>("slow", null, { waitForAgentMs: 10_000 }));
    await begun.promise;
    await hub.kill();
    await hub.restart();
    go.now();
    assert.equal(await answer, "done");
    assert.equal(runs, 1);
    await page.context().close();
  });

  /** Resolves with the first event that is wanted, and leaves the rest for the next. */
  async function watched(events: AsyncIterator<{ event: string }>, wanted: string): Promise<void> {
    for (;;) {
      const next = await events.next();
      if (next.done === true) throw new Error(`the watch ended before ${wanted}`);
      if (next.value.event === wanted) return;
    }
  }

  /**
   * A page that can be frozen, with `window.agent` connected and `window.lost`: that it is not any more. Left to itself it
   * would dial again after half an hour.
   */
  async function freezable(hub: PageHub): Promise<BarePage> {
    const page = await BarePage.open(browser, site.origin);
    await page.evaluate(`new Promise((done, failed) => {
      window.lost = new Promise((lost) => {
        const log = (_, text) => text.startsWith("not connected") && lost();
        const options = { url: "${site.relayTo(hub)}", agentId: "alice", reconnectMs: [3600000, 3600000], log };
        client.connect(options).then((agent) => {
          window.agent = agent;
          Math.random = () => 0.5;
          done();
        }, failed);
      });
    })`);
    return page;
  }

  test("LIVE-3 a page that is frozen stays an agent, since its browser answers pings, and calls as soon as it is woken", async () => {
    const hub = await PageHub.start(site.origin, SUSPICIOUS);
    ends.push(() => hub.stop());
    const provider = await hub.agent("provider");
    await provider.provide("echo", (ctx) => ctx.input).sync();
    const filter = { subjects: ["agents"], agent_id: "alice" };
    const events = provider.stream<{ event: string }>("hub.events.watch", filter)[Symbol.asyncIterator]();
    const page = await freezable(hub);
    await page.freeze();
    for (let i = 0; i < 2; i++) {
      await watched(events, "agent.suspect");
      await watched(events, "agent.ready");
    }
    // Now Chromium closes the connection.
    await page.wake();
    // The provider may be suspected as well at that moment.
    assert.equal(await page.evaluate("agent.call('echo', 'awake', { waitForAgentMs: 60000 })"), "awake");
    const [alice] = (await provider.agents()).filter(({ agent_id }) => agent_id === "alice");
    assert.equal(await page.evaluate("agent.instance"), alice!.instance);
    await events.return();
    await page.close();
  });

  test("LIVE-3 a page that lost its hub and was frozen meanwhile dials as soon as it is woken, not when its wait is over", async () => {
    const page = await freezable(hub);
    await hub.kill();
    await page.evaluate("lost");
    // Its wait is drawn. A dial that fails because the machine is busy is to be tried again at once.
    await page.evaluate("void (Math.random = () => 0)");
    await page.freeze();
    await hub.restart();
    await provider.sync();
    await page.wake();
    assert.equal(await page.evaluate("agent.call('echo', 'back')"), "back");
    await page.close();
  });
}
