import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";

import type { Browser } from "playwright-core";

import { browser, isLive, open, visitor } from "./console.ts";
import { Hub, development, type Development } from "./hub.ts";

let hub: Hub;
let chromium: Browser;
let evil: Server;
let elsewhere: string;

before(async () => {
  hub = await Hub.start();
  chromium = await browser();
  evil = createServer((_, response) => response.setHeader("content-type", "text/html").end("<!doctype html><title>evil</title>"));
  evil.listen(0, "127.0.0.1");
  await once(evil, "listening");
  elsewhere = `http://127.0.0.1:${(evil.address() as AddressInfo).port}`;
});
after(async () => {
  evil.close();
  await chromium.close();
  await hub.stop();
});

test("a page of another origin gets nothing by the cookie of who visits it", async () => {
  const context = await visitor(chromium, hub);
  await open(context, hub.operator);
  const page = await context.newPage();
  await page.goto(elsewhere);
  const cookies = await context.cookies(hub.origin);
  assert.deepEqual(
    cookies.map(({ httpOnly, sameSite }) => ({ httpOnly, sameSite })),
    [{ httpOnly: true, sameSite: "Strict" }],
  );
  const got = await page.evaluate(async (origin) => {
    const socket = new Promise<string>((resolve) => {
      const ws = new WebSocket(`${origin.replace("http", "ws")}/v1/connect`, "agent-reach.v1.json");
      ws.onopen = () => resolve("open");
      ws.onclose = () => resolve("closed");
    });
    const ask = (init: RequestInit): Promise<string> =>
      fetch(`${origin}/v1/session`, { credentials: "include", ...init }).then(
        (response) => (response.type === "opaque" ? "unreadable" : `read ${response.status}`),
        () => "refused",
      );
    return [await socket, await ask({}), await ask({ method: "DELETE" }), await ask({ mode: "no-cors" })];
  }, hub.origin);
  assert.deepEqual(got, ["closed", "refused", "refused", "unreadable"]);
  const still = await context.newPage();
  await still.goto("/#/agents");
  await isLive(still);
});

test("the link of a development hub logs in once, and whoever has it later gets nothing", async () => {
  const dev: Development = await development();
  try {
    const context = await visitor(chromium, dev);
    const page = await context.newPage();
    await page.goto(dev.link);
    assert.equal(page.url(), `${dev.origin}/`);
    await page.reload();
    await isLive(page);
    const thief = await (await visitor(chromium, dev)).newPage();
    const answer = await thief.goto(dev.link);
    assert.equal(answer?.status(), 401);
    await thief.goto("/#/agents");
    await thief.getByLabel("Token").waitFor();
  } finally {
    await dev.stop();
  }
});
