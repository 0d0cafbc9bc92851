import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";

import { connect, Directory, type CallError } from "../src/node.js";
import { Hub } from "./support/hub.js";
import { signalled } from "./support/signal.js";

let hub: Hub;

before(async () => {
  hub = await Hub.start();
});
after(() => hub.stop());

test("RESUME-5 CALL-4 calls that are open when the hub is killed and started again end with their results, each run once", async () => {
  const provider = await hub.agent("worker");
  const caller = await hub.agent("boss");
  const go = signalled();
  const begun = signalled();
  let runs = 0;
  await provider
    .provide("slow", async (ctx) => {
      runs += 1;
      if (runs === 50) begun.now();
      await go.promise;
      return ctx.input;
    })
    .sync();
  const calls = Array.from({ length: 50 }, (_, i) => caller.call<number>("slow", i));
  const results = Promise.all(calls);
  await begun.promise;
  await hub.kill();
  await hub.restart();
  go.now();
  assert.deepEqual(
    await results,
    Array.from({ length: 50 }, (_, i) => i),
  );
  assert.equal(runs, 50);
});

test("STREAM-5 a stream goes on over a hub that is killed, whole or interrupted, and TASK-2 so does a task", async () => {
  const provider = await hub.agent("teller");
  const caller = await hub.agent("listener");
  await provider
    .provide("tale", async function* () {
      for (let i = 0; i < 40; i++) yield i;
      return "end";
    })
    .sync();
  const go = signalled();
  const begun = signalled();
  await provider
    .provide("job", async () => {
      begun.now();
      await go.promise;
      return "done";
    })
    .sync();
  const task = await caller.submit<string>("job", null);
  await begun.promise;
  const pieces: number[] = [];
  try {
    for await (const piece of caller.stream<number>("tale", null, { window: 4 })) {
      pieces.push(piece);
      if (piece !== 9) continue;
      await hub.kill();
      await hub.restart();
    }
    assert.equal(pieces.length, 40);
  } catch (error) {
    assert.equal((error as CallError).code, "interrupted");
  }
  assert.deepEqual(
    pieces,
    Array.from({ length: pieces.length }, (_, i) => i),
  );
  go.now();
  assert.equal(await task.result(), "done");
});

test("BACK-6 after a restart every capability and every watch is live before a call needs it", async () => {
  const provider = await hub.agent("many");
  const caller = await hub.agent("asker");
  for (const name of ["a", "b", "c", "d"]) provider.provide(`many.${name}`, () => name);
  await provider.sync();
  const directory = new Directory(caller);
  await directory.until((now) => now.offering("many.d").length === 1);
  await hub.kill();
  await directory.until((now) => !now.isFresh);
  await hub.restart();
  const answers = ["a", "b", "c", "d"].map((name) => caller.call(`many.${name}`, null, { waitForAgentMs: 10_000 }));
  assert.deepEqual(await Promise.all(answers), ["a", "b", "c", "d"]);
  await directory.until((now) => now.isFresh && now.offering("many.d").length === 1);
});

test("BACK-3 a hub that drains is come back to, and what was open ends", async () => {
  const provider = await hub.agent("drainer");
  const caller = await hub.agent("waiter");
  const begun = signalled();
  const go = signalled();
  await provider
    .provide("drained", async () => {
      begun.now();
      await go.promise;
      return "still";
    })
    .sync();
  const result = Promise.resolve(caller.call("drained"));
  await begun.promise;
  const drained = hub.drain();
  go.now();
  assert.equal(await result, "still");
  await drained;
  await hub.restart();
  assert.equal(await caller.call("drained", null, { waitForAgentMs: 10_000 }), "still");
});

test("BACK-4 a newer agent of the same name takes over, and the older one does not fight it", async () => {
  const older = await hub.agent("twin");
  const newer = await hub.agent("twin");
  const reason = await older.closed();
  assert.deepEqual([reason.kind, reason.code], ["goodbye", "replaced"]);
  await assert.rejects(Promise.resolve(older.call("a")), { code: "closed" });
  assert.ok(newer.isConnected);
});

test("CONN-4 an agent that the hub does not want is told so at once, and one without a hub after its time", async () => {
  await assert.rejects(hub.agent("intruder", { tls: hub.tls("twin") }), { kind: "refused", code: "unauthorized" });
  const nowhere = hub.agent("late", { url: "wss://127.0.0.1:1", connectTimeoutMs: 300 });
  await assert.rejects(nowhere, (error: Error) => /ECONNREFUSED/.test(error.message));
});

test("CONN-2 a certificate file that is not there is an error when the agent is made", async () => {
  const tls = { ...hub.tls("twin"), cert: "/nowhere.pem" };
  await assert.rejects(hub.agent("twin", { tls }), { kind: "tls" });
});

test("CONN-2 certificate files are read anew at each connect, and a broken one is a failed dial like any other", async () => {
  const tls = hub.tls("renewed");
  const [failed, lost] = [signalled(), signalled()];
  const log = (_: string, text: string): void => {
    if (!text.startsWith("not connected")) return;
    lost.now();
    if (/PEM|key|cert/i.test(text)) failed.now();
  };
  const agent = await hub.agent("renewed", { log });
  const good = readFileSync(tls.cert);
  writeFileSync(tls.cert, "no certificate");
  await hub.kill();
  await lost.promise;
  await hub.restart();
  await failed.promise;
  assert.equal(agent.isConnected, false);
  writeFileSync(tls.cert, good);
  await agent.sync();
  assert.equal(agent.isConnected, true);
});

test("CONN-6 an upgrade that is refused with HTTP 4xx is final", async () => {
  const wrongPath = connect({ url: `${hub.url}/v1/nothing`, agentId: "lost", tls: hub.tls("lost"), log: () => {} });
  await assert.rejects(wrongPath, { kind: "http", code: 404 });
});

test("END-1 an agent that closes lets its handlers end, and takes nothing new", async () => {
  const provider = await hub.agent("closer");
  const caller = await hub.agent("closes");
  const go = signalled();
  const begun = signalled();
  await provider
    .provide("last", async () => {
      begun.now();
      await go.promise;
      return "ended";
    })
    .sync();
  const result = Promise.resolve(caller.call("last"));
  await begun.promise;
  const closed = provider.close();
  go.now();
  assert.equal(await result, "ended");
  assert.equal((await closed).kind, "closed");
  await assert.rejects(Promise.resolve(caller.call("last")), { code: "no_instance" });
});
