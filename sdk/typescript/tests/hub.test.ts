import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  CallError,
  Directory,
  HandlerError,
  Raw,
  Timestamp,
  type Agent,
  type Context,
  type Handled,
} from "../src/node.js";
import { Hub } from "./support/hub.js";
import { signalled } from "./support/signal.js";

let hub: Hub;
let provider: Agent;
let caller: Agent;

before(async () => {
  hub = await Hub.start();
  provider = await hub.agent("provider");
  caller = await hub.agent("caller");
});
after(() => hub.stop());

/** Offers a capability, and waits until the hub knows it. */
async function offer<I, O>(name: string, handler: (ctx: Context<I>) => Handled<O>): Promise<void> {
  await provider.provide(name, handler).sync();
}

const hex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "hex"));

test("CODEC-4 big integers, bytes, text, moments and keys of any type come back through the hub as they were", async () => {
  await offer("echo", (ctx) => ctx.input);
  const values = [
    { n: 86699530287996692n, min: -(2n ** 63n), max: 2n ** 64n - 1n, small: 7, x: 1.5 },
    hex("00ff80"),
    "\0é😀",
    "",
    new Uint8Array(),
    new Date("2024-05-01T12:00:00.250Z"),
    new Map<unknown, unknown>([
      [1, "x"],
      [[1], null],
      ["a", true],
    ]),
    null,
    [],
  ];
  for (const value of values) assert.deepEqual(await caller.call("echo", value), value);
  const fine = await caller.call<Timestamp>("echo", new Timestamp(5n, 123));
  assert.deepEqual([fine.seconds, fine.nanoseconds], [5n, 123]);
});

test("CODEC-5 bytes of another content type are handed over as they are", async () => {
  await offer("raw", (ctx) => {
    assert.equal(ctx.contentType, "application/json");
    return new Raw(ctx.input as Uint8Array, "text/x-own");
  });
  const reply = await caller.call("raw", new Raw(hex("7b7d"), "application/json")).reply();
  assert.deepEqual([reply.body, reply.contentType], [hex("7b7d"), "text/x-own"]);
});

test("CALL-12 a reply says who did it and how it got there", async () => {
  await offer("who", (ctx) => [ctx.caller, ctx.capability, ctx.attempt, ctx.mode]);
  const reply = await caller.call("who", undefined, { requestId: "who-1" }).reply();
  assert.deepEqual(reply.body, ["caller", "who", 1, "call"]);
  assert.deepEqual([reply.target, reply.requestId, reply.cached, reply.duplicate], ["provider", "who-1", false, false]);
  assert.equal(reply.attempts.length, 1);
  const again = await caller.call("who", undefined, { requestId: "who-1" }).reply();
  assert.deepEqual([again.duplicate, again.body], [true, reply.body]);
});

test("PROV-6 ERR-1 a handler's own failure reaches the caller with its code, and one that passes as it is", async () => {
  await offer("fails", (ctx) => {
    if (ctx.input === "own") throw new HandlerError("no-stock", "none left", { retryable: false });
    if (ctx.input === "pass") throw new HandlerError("invalid_request", "not so");
    throw new TypeError("a bug");
  });
  const failure = (input: string): Promise<CallError> =>
    caller.call("fails", input).then(
      () => assert.fail("it did not fail"),
      (error: unknown) => error as CallError,
    );
  const own = await failure("own");
  assert.ok(own instanceof CallError);
  assert.deepEqual([own.code, own.accepted, own.retryable], ["handler_error", "yes", false]);
  assert.deepEqual(own.details, { code: "no-stock", message: "none left" });
  assert.equal((await failure("pass")).code, "invalid_request");
  assert.deepEqual((await failure("bug")).details, { code: "error", message: "a bug" });
});

test("ERR-2 a call that nobody could have had says so", async () => {
  await assert.rejects(Promise.resolve(caller.call("nobody.has-it")), (error: CallError) => {
    assert.deepEqual([error.code, error.accepted], ["no_capability", "no"]);
    return true;
  });
});

test("STREAM-1 a generator's pieces come in order and its return value is the result", async () => {
  await offer("count", async function* (ctx: Context<number>) {
    for (let i = 0; i < ctx.input; i++) yield i;
    return "done";
  });
  const stream = caller.stream<number, string>("count", 100, { window: 4 });
  const pieces: number[] = [];
  for await (const piece of stream) pieces.push(piece);
  assert.deepEqual(
    pieces,
    Array.from({ length: 100 }, (_, i) => i),
  );
  assert.equal(await stream.result(), "done");
});

test("STREAM-3 STREAM-4 a reader that stops stops its provider after a window, and one that leaves cancels it", async () => {
  let emitted = 0;
  const stopped = signalled();
  await offer("endless", async (ctx) => {
    ctx.signal.addEventListener("abort", stopped.now);
    for (;;) {
      await ctx.emit("x");
      emitted += 1;
    }
  });
  for await (const _ of caller.stream("endless", null, { window: 4 })) {
    // What is on its way had time to come: a whole call and its answer went over both connections meanwhile.
    for (let i = 0; i < 10; i++) await caller.call("echo", i);
    break;
  }
  await stopped.promise;
  assert.ok(emitted <= 4, `${emitted} pieces for a window of 4`);
});

test("CALL-8 an abort signal ends the call, and its handler is told", async () => {
  const abort = new AbortController();
  const told = signalled();
  await offer("slow", (ctx) => {
    ctx.signal.addEventListener("abort", told.now);
    abort.abort();
    return new Promise(() => {});
  });
  await assert.rejects(Promise.resolve(caller.call("slow", null, { signal: abort.signal })), { code: "cancelled" });
  await told.promise;
});

test("CALL-10 notify ends with phase one", async () => {
  const release = signalled();
  await offer("mail", () => release.promise);
  await caller.notify("mail", "hello");
  release.now();
});

test("CALL-11 a fan-out gives each agent's part, and one agent's failure is its own", async () => {
  const others = await Promise.all(["voter-a", "voter-b"].map((name) => hub.agent(name)));
  others.forEach((agent, i) => agent.provide("vote", () => (i === 0 ? "yes" : Promise.reject(new Error("no vote")))));
  await new Directory(caller).until((directory) => directory.offering("vote").length === 2);
  const { parts, summary } = await caller.callAll<string>("vote");
  assert.deepEqual(summary, { targets: 2, completed: 1, failed: 1 });
  const byTarget = Object.fromEntries(parts.map((part) => [part.target, part.ok ? part.reply.body : part.error.code]));
  assert.deepEqual(byTarget, { "voter-a": "yes", "voter-b": "handler_error" });
  const one = await caller.callAll<string>("vote", null, { agents: ["voter-a"] });
  assert.deepEqual(one.parts.map((part) => [part.target, part.ok && part.reply.body]), [["voter-a", "yes"]]);
  const seen: string[] = [];
  for await (const item of caller.callAll("vote")) seen.push(item.target);
  assert.deepEqual(seen.sort(), ["voter-a", "voter-b"]);
});

test("TASK-1 TASK-5 TASK-8 a task is stored before it is worked on, says its progress, and its result comes to the handle", async () => {
  await offer("report", async function* () {
    yield { percent: 50 };
    return "the report";
  });
  const task = await caller.submit<string>("report", null);
  assert.notEqual(task.id, "");
  assert.equal(await task.result(), "the report");
  assert.equal((await task.info()).state, "SUCCEEDED");
  assert.equal(await caller.task<string>(task.id).result(), "the report");
  assert.equal(await task.cancel(), false);
  const listed = await caller.tasks({ capability: "report" });
  assert.deepEqual(
    listed.map((one) => one.task_id),
    [task.id],
  );
});

test("TASK-6 a task that is submitted again under its request id is the same one, and its stored end when it is over", async () => {
  const go = signalled();
  await offer("again", () => go.promise.then(() => "once"));
  const first = await caller.submit("again", null, { requestId: "again-1" });
  const second = await caller.submit("again", null, { requestId: "again-1" });
  assert.equal(second.id, first.id);
  go.now();
  assert.deepEqual([await first.result(), await second.result()], ["once", "once"]);
  const third = await caller.submit("again", null, { requestId: "again-1" });
  const reply = await third.reply();
  assert.deepEqual([third.id, reply.body, reply.duplicate], [first.id, "once", true]);
});

test("TASK-7 a watch shows a task's steps and its progress, and ends with it", async () => {
  const go = signalled();
  await offer("steps", async (ctx) => {
    await go.promise;
    ctx.progress("half");
    return 1;
  });
  const task = await caller.submit("steps");
  const seen: unknown[] = [];
  for await (const event of task.watch()) {
    go.now();
    seen.push(event.is === "state" ? event.task.state : event.progress);
  }
  assert.ok(seen.includes("half"), String(seen));
  assert.equal(seen.at(-1), "SUCCEEDED");
});

test("TASK-4 a result that no handle waits for goes to the inbox, once", async () => {
  const lonely = await hub.agent("lonely");
  await caller.submit("report", null, { replyTo: "agent:lonely" });
  const { value } = await lonely.inbox.next();
  assert.deepEqual(value?.end, { reply: { ...(value?.end as { reply: object }).reply, body: "the report" } });
});

test("DISC-1 agents and capabilities are listed", async () => {
  const agents = await caller.agents();
  assert.ok(agents.some((agent) => agent.agent_id === "provider" && agent.capabilities.includes("echo")));
  const capabilities = await caller.capabilities();
  assert.ok(capabilities.find((one) => one.name === "echo")?.agents.some((offer) => offer.agent_id === "provider"));
});

test("DISC-2 a directory follows who comes and goes", async () => {
  const directory = new Directory(caller);
  const guest = await hub.agent("guest");
  await directory.until((now) => now.isFresh && now.get("guest")?.status === "ready");
  await guest.close();
  await directory.until((now) => now.get("guest") === undefined);
  directory.close();
  assert.equal(directory.isFresh, false);
});

test("CALL-11 a fan-out in pieces names whose each piece is", async () => {
  const others = await Promise.all(["bard-a", "bard-b"].map((name) => hub.agent(name)));
  for (const agent of others) {
    await agent
      .provide("sing", async function* () {
        for (let i = 0; i < 10; i++) yield i;
        return agent.agentId;
      })
      .sync();
  }
  const pieces: Record<string, unknown[]> = { "bard-a": [], "bard-b": [] };
  for await (const item of caller.callAll("sing", null, { window: 4 })) {
    pieces[item.target]!.push(item.is === "chunk" ? item.chunk : item.ok && item.reply.body);
  }
  const song = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  assert.deepEqual(pieces, { "bard-a": [...song, "bard-a"], "bard-b": [...song, "bard-b"] });
});

test("BOUND-1 bodies that fill every buffer on the way arrive whole", async () => {
  // More than socket and queue take at once, and less than the 4 MiB after which the hub calls a reader slow.
  const calls = Array.from({ length: 4 }, (_, i) => caller.call<Uint8Array>("echo", new Uint8Array(900_000).fill(i)));
  const results = await Promise.all(calls);
  results.forEach((bytes, i) => {
    assert.ok(bytes.length === 900_000 && bytes.every((byte) => byte === i), `call ${i}`);
  });
});

test("CALL-5 a message over the limit fails alone", async () => {
  const calls = Array.from({ length: 20 }, (_, i) => caller.call("echo", i === 7 ? new Uint8Array(1_048_577) : i));
  const ends = await Promise.allSettled(calls);
  ends.forEach((end, i) => {
    if (i !== 7) assert.deepEqual(end, { status: "fulfilled", value: i });
    else assert.equal(((end as PromiseRejectedResult).reason as CallError).code, "payload_too_large");
  });
});
