import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";

import { WebSocket, WebSocketServer } from "ws";

import { connect, type Agent } from "../src/index.js";
import { FakeHub } from "../src/testing/index.js";
import { signalled } from "./support/signal.js";

/** A hub in memory behind real sockets. */
let hub: FakeHub;
let server: WebSocketServer;
let url: string;
const own = globalThis.WebSocket as unknown;

before(async () => {
  // Node 20 has no WebSocket of its own; that of `ws` keeps to the browsers' interface.
  Object.assign(globalThis, { WebSocket });
  server = new WebSocketServer({ host: "127.0.0.1", port: 0, handleProtocols: (offered) => [...offered][0] ?? false });
  server.on("connection", (socket) => {
    const events = hub.accept({
      send: (message) => socket.send(message),
      close: (code, reason) => (code === undefined ? socket.terminate() : socket.close(code, reason)),
    });
    socket.on("message", (data: Buffer) => events.message(data));
    socket.on("close", () => events.gone());
  });
  await once(server, "listening");
  url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
after(() => {
  Object.assign(globalThis, { WebSocket: own });
  for (const socket of server.clients) socket.terminate();
  server.close();
});

function agent(agentId: string, connectTimeoutMs = 5000): Promise<Agent> {
  return connect({ url, agentId, connectTimeoutMs, reconnectMs: [0, 0], log: () => {} });
}

test("a page calls and provides over its own WebSocket, and carries on after the connection was cut", async () => {
  hub = new FakeHub();
  const [page, other] = [await agent("page"), await agent("other")];
  await page.provide("echo", (ctx) => ctx.input).sync();
  const bytes = new Uint8Array(300_000).fill(7);
  assert.deepEqual(await other.call("echo", bytes), bytes);
  hub.disconnect("page");
  hub.disconnect("other");
  assert.equal(await other.call("echo", "again"), "again");
  const calls = Array.from({ length: 200 }, (_, i) => other.call("echo", i));
  assert.deepEqual(
    await Promise.all(calls),
    Array.from({ length: 200 }, (_, i) => i),
  );
  await page.close();
  await other.close();
});

test("BACK-4 a close code that is final ends a page's agent", async () => {
  hub = new FakeHub();
  const page = await agent("page");
  hub.goodbye("page", "replaced");
  assert.equal((await page.closed()).code, "replaced");
});

test("LIVE-3 a page that is shown again comes back at once, and one whose hub is gone says that it is not connected", async () => {
  hub = new FakeHub();
  const listeners = new Map<string, () => void>();
  // A page has these; the environment asks for them when the agent is made.
  Object.assign(globalThis, {
    addEventListener: (name: string, listener: () => void) => listeners.set(name, listener),
    removeEventListener: (name: string) => listeners.delete(name),
  });
  const lost = signalled();
  const log = (_: string, text: string): void => {
    if (text.startsWith("not connected")) lost.now();
  };
  const shown = await connect({ url, agentId: "shown", reconnectMs: [3_600_000, 3_600_000], log });
  hub.disconnect("shown");
  await lost.promise;
  assert.equal(shown.isConnected, false);
  const back = hub.until((now) => now.isConnected("shown"));
  listeners.get("online")?.();
  await back;
  await shown.sync();
  assert.equal(shown.isConnected, true);
  await shown.close();
  assert.equal(listeners.size, 0);
  Object.assign(globalThis, { addEventListener: undefined, removeEventListener: undefined });
});
