/**
 * The asking half of a pair: what docs/sdk-behaviour.md asks of it under "Pairs". Exits with 1 where it is not so.
 *
 *     AGENT_REACH_HUB=... node build/conformance/caller.js NAME PROVIDER
 *
 * It says `restart` when the hub is to be killed and started again, and goes on by itself when it is back.
 */

import assert from "node:assert/strict";

import { CallError, encode, Ext, Raw, Timestamp } from "../src/node.js";
import { agentOf } from "./connect.js";

const [, , name = "", provider = ""] = process.argv;
const agent = await agentOf(name);
const to = { agents: [provider], waitForAgentMs: 20_000, budgetMs: 30_000 };

const VALUES: unknown[] = [
  ...[null, true, false, 0, -1, 127, 128, -(2 ** 31), 2n ** 53n + 1n, 86699530287996692n],
  ...[2n ** 63n - 1n, 2n ** 64n - 1n, -(2n ** 63n), 0.5, -0, 1e300, NaN, Infinity, -Infinity],
  ...["", "\0é😀\u2028", "x".repeat(70_000), new Uint8Array(), new Uint8Array([0, 255, 128])],
  ...[new Uint8Array(70_000).fill(120), [], [0, 255, new Uint8Array([128]), "\x80"]],
  ...[{}, { "": [{}], é: { n: new Uint8Array(1) } }, new Map<unknown, string>([[1, "by a number"], ["1", "by a text"]])],
  ...[new Date(1500), new Timestamp(1n, 999), new Ext(5, new Uint8Array([1]))],
];

async function failure(what: PromiseLike<unknown>): Promise<CallError> {
  try {
    await what;
  } catch (error) {
    if (error instanceof CallError) return error;
    throw error;
  }
  return assert.fail("it did not fail");
}

/** Waits until the handler of this key was cancelled. */
async function wasCancelled(key: { key: string }): Promise<void> {
  while (!(await agent.call<boolean>("pair.cancelled", key, to)));
}

const steps: Record<string, () => Promise<void>> = {
  "PAIR-1": async () => {
    for (const value of VALUES) {
      const back = await agent.call("pair.echo", value, to);
      assert.deepEqual(encode(back), encode(value));
      assert.deepEqual(back, value);
    }
    const raw = new Raw(new Uint8Array([0xc1, 0]), "image/png");
    const { body, contentType } = await agent.call("pair.echo", raw, to).reply();
    assert.deepEqual([body, contentType], [raw.bytes, raw.contentType]);
  },
  "PAIR-2": async () => {
    const stream = agent.stream<number, number>("pair.count", 500, { ...to, window: 7 });
    let due = 0;
    for await (const piece of stream) assert.equal(piece, due++);
    assert.deepEqual([due, await stream.result()], [500, 500]);
    due = 0;
    const key = { key: `endless-${name}` };
    for await (const piece of agent.stream<number>("pair.endless", key, { ...to, window: 4 })) {
      assert.equal(piece, due++);
      if (due === 50) break;
    }
    await wasCancelled(key);
  },
  "PAIR-3": async () => {
    for (const [code, retryable] of [
      ["no-tea", false],
      ["later", true],
    ] as const) {
      const error = await failure(agent.call("pair.fail", { code, message: "é", retryable }, { ...to, retries: 0 }));
      const told = error.cause ?? error;
      assert.deepEqual([told.code, told.retryable], ["handler_error", retryable]);
      assert.deepEqual(told.details, { code, message: "é" });
      assert.equal(error.accepted, "yes");
    }
    const nobody = await failure(agent.call("pair.none", undefined, { agents: [provider] }));
    assert.deepEqual([nobody.code, nobody.accepted], ["no_capability", "no"]);
    const late = { agents: ["nobody-is-called-so"], waitForAgentMs: 20_000, budgetMs: 300 };
    const absent = await failure(agent.call("pair.echo", undefined, late));
    assert.deepEqual([absent.code, absent.accepted], ["budget_exhausted", "unknown"]);
  },
  "PAIR-4": async () => {
    const pending = agent.call("pair.wait", { key: name }, to);
    await pending.accepted();
    pending.cancel();
    await wasCancelled({ key: name });
  },
  "PAIR-5": async () => {
    const body = { key: `task-${name}`, ms: 10 };
    const task = await agent.submit<number>("pair.slow", body, { agents: [provider], budgetMs: 30_000 });
    assert.equal(await task.result(), 1);
    assert.equal((await task.info()).state, "SUCCEEDED");
  },
  "PAIR-6": async () => {
    const pending = agent.call("pair.slow", { key: `call-${name}`, ms: 1500 }, to);
    await pending.accepted();
    console.log("restart");
    assert.equal(await pending, 1);
    assert.equal(await agent.call("pair.echo", "after", to), "after");
  },
  "PAIR-7": async () => {
    const requestId = `once-${name}`;
    const ask = () => agent.call<number>("pair.slow", { key: requestId, ms: 200 }, { ...to, requestId });
    const first = ask();
    await first.accepted();
    const second = ask();
    assert.deepEqual([await first, await second], [1, 1]);
    const third = await ask().reply();
    assert.deepEqual([third.body, third.duplicate], [1, true]);
  },
  "PAIR-8": async () => {
    const body = { key: `notified-${name}`, ms: 0 };
    await agent.notify("pair.slow", body, to);
    assert.equal(await agent.call("pair.slow", body, to), 2);
    const said = await agent.callAll<string>("pair.echo", "all", to);
    const heard = said.parts.map((part) => [part.target, part.ok ? part.reply.body : part.error]);
    assert.deepEqual(heard, [[provider, "all"]]);
    assert.deepEqual([said.summary.targets, said.summary.completed], [1, 1]);
    const failing = { code: "no-tea", message: "", retryable: false };
    const failed = await agent.callAll("pair.fail", failing, to);
    assert.deepEqual(failed.parts.map((part) => !part.ok && part.error.code), ["handler_error"]);
    assert.deepEqual([failed.summary.completed, failed.summary.failed], [0, 1]);
  },
  "PAIR-9": async () => {
    const asked = Array.from({ length: 30 }, () => agent.call<Uint8Array>("pair.large", 900_000, to));
    for (const body of await Promise.all(asked)) assert.equal(body.length, 900_000);
  },
};

for (const [id, step] of Object.entries(steps)) {
  await step();
  console.log(`${id} ok`);
}
await agent.close();
