import assert from "node:assert/strict";
import { test } from "node:test";

import { z } from "zod";

import {
  CallError,
  Directory,
  HandlerError,
  MemoryStore,
  type Agent,
  type AgentOptions,
  type Context,
} from "../src/index.js";
import { specOf } from "../src/client/options.js";
import { decodeToHub, encodeToHub, Kind } from "../src/frames/index.js";
import { EMPTY } from "../src/session/types.js";
import { FakeHub } from "../src/testing/index.js";
import { addressOf } from "../src/transport/index.js";
import { signalled } from "./support/signal.js";

interface Pair {
  hub: FakeHub;
  provider: Agent;
  caller: Agent;
  end: () => Promise<unknown>;
}

/** A provider and a caller at a hub in memory. */
async function pair(options: Partial<AgentOptions> = {}, atHub = new FakeHub()): Promise<Pair> {
  const [provider, caller] = [await atHub.agent("provider", options), await atHub.agent("caller")];
  return { hub: atHub, provider, caller, end: () => Promise.all([provider.close(0), caller.close(0)]) };
}

/** The error of what fails. */
async function failure(what: PromiseLike<unknown>): Promise<CallError> {
  try {
    await what;
  } catch (error) {
    assert.ok(error instanceof CallError, String(error));
    return error;
  }
  return assert.fail("it did not fail");
}

test("TEST-1 agents at a hub in memory call, stream, fan out and submit to each other", async () => {
  const { hub, provider, caller, end } = await pair();
  await provider.provide("echo", (ctx) => ctx.input).sync();
  await provider
    .provide("count", function* (ctx: Context<number>) {
      for (let i = 0; i < ctx.input; i++) yield i;
      return "end";
    })
    .sync();
  assert.equal(await caller.call("echo", 2n ** 63n), 2n ** 63n);
  const stream = caller.stream<number, string>("count", 50);
  const pieces: number[] = [];
  for await (const piece of stream) pieces.push(piece);
  assert.deepEqual([pieces.length, pieces.at(-1), await stream.result()], [50, 49, "end"]);
  const other = await hub.agent("other");
  await other
    .provide("echo", () => {
      throw new Error("no");
    })
    .sync();
  assert.deepEqual((await caller.callAll("echo", 1)).summary, { targets: 2, completed: 1, failed: 1 });
  const task = await caller.submit("count", 3);
  assert.equal(await task.result(), "end");
  assert.equal((await failure(caller.call("nothing"))).code, "no_capability");
  await other.close();
  await end();
});

test("RESUME-1 a call goes on over lost connections of both sides, and runs once", async () => {
  const { hub, provider, caller, end } = await pair();
  const [go, begun] = [signalled(), signalled()];
  let runs = 0;
  await provider
    .provide("slow", async (ctx) => {
      runs += 1;
      begun.now();
      await go.promise;
      return ctx.requestId;
    })
    .sync();
  const pending = caller.call("slow", null, { requestId: "once" });
  const result = pending.reply();
  await begun.promise;
  hub.disconnect("provider");
  hub.disconnect("caller");
  await Promise.all([provider.sync(), caller.sync()]);
  go.now();
  assert.equal((await result).body, "once");
  assert.equal(runs, 1);
  await end();
});

test("PROV-2 a Zod schema becomes JSON Schema, and checks and converts what comes in and goes out", async () => {
  const { provider, caller, end } = await pair();
  const input = z.object({ amount: z.number().min(1), note: z.string().default("none") });
  const output = z.object({ total: z.number() });
  await provider
    .provide(
      "order.create",
      (ctx) => ({ total: ctx.input.note === "bad" ? "x" : ctx.input.amount * 2, note: ctx.input.note }),
      { input, output },
    )
    .sync();
  assert.deepEqual(await caller.call("order.create", { amount: 2 }), { total: 4 });
  const wrong = await failure(caller.call("order.create", { amount: 0 }));
  assert.equal(wrong.code, "invalid_request");
  assert.ok(Array.isArray((wrong.details as { issues: unknown[] }).issues));
  const broken = await failure(caller.call("order.create", { amount: 1, note: "bad" }));
  assert.deepEqual([broken.code, (broken.details as { code: string }).code], ["handler_error", "output"]);
  const [offer] = (await caller.capabilities()).find((one) => one.name === "order.create")!.agents;
  const schema = offer!.input_schema as { type: string; required: string[]; properties: object };
  assert.deepEqual(
    [schema.type, schema.required, Object.keys(schema.properties)],
    ["object", ["amount"], ["amount", "note"]],
  );
  await end();
});

test("PROV-2 a plain JSON Schema goes to the hub as it is", async () => {
  const { provider, caller, end } = await pair();
  const input = { type: "object", required: ["a"] };
  await provider.provide("plain", () => 1, { input, description: "d", version: "1.2.3" }).sync();
  const [offer] = (await caller.capabilities()).find((one) => one.name === "plain")!.agents;
  assert.deepEqual([offer!.input_schema, offer!.description, offer!.version], [input, "d", "1.2.3"]);
  await end();
});

test("PROV-1 a name is folded, and one outside the grammar or the hub's own is refused", async () => {
  const { provider, caller, end } = await pair();
  await provider.provide("Text_Case.Upper", () => 1).sync();
  assert.equal(await caller.call("text-case.upper"), 1);
  for (const name of ["", "a..b", "hub.x", "hub", "a b", "x".repeat(129)]) {
    assert.throws(() => provider.provide(name, () => 1), { kind: "config" }, name);
  }
  await end();
});

test("PROV-3 a handler knows its call", async () => {
  const { provider, caller, end } = await pair();
  await provider
    .provide("know", (ctx) => [
      ctx.caller,
      ctx.requestId,
      ctx.priority,
      ctx.labels,
      ctx.private("x-own"),
      ctx.traceparent,
      ctx.wantsStream,
      ctx.remainingMs > 0,
    ])
    .sync();
  const options = {
    requestId: "r",
    priority: "high",
    labels: { zone: "a" },
    private: { "x-own": [1n] },
    traceparent: "00-1",
  } as const;
  assert.deepEqual(await caller.call("know", null, options), [
    "caller",
    "r",
    "high",
    { zone: "a" },
    [1],
    "00-1",
    false,
    true,
  ]);
  await end();
});

test("PROV-6 what a handler throws costs its own call only, whatever it is", async () => {
  const { provider, caller, end } = await pair();
  const thrown: unknown[] = [
    "a text",
    new Error("bad \ud800 text"),
    new HandlerError("own", "m".repeat(5000)),
    undefined,
  ];
  await provider
    .provide("throws", (ctx: Context<number>) => {
      throw thrown[ctx.input];
    })
    .sync();
  for (let i = 0; i < thrown.length; i++) assert.equal((await failure(caller.call("throws", i))).code, "handler_error");
  await provider.provide("odd", () => () => 1).sync();
  assert.equal((await failure(caller.call("odd"))).code, "handler_error");
  await end();
});

test("PROV-9 leaving a stream runs the generator's finally", async () => {
  const { provider, caller, end } = await pair();
  const cleaned = signalled();
  await provider
    .provide("endless", async function* () {
      try {
        for (;;) yield "x";
      } finally {
        cleaned.now();
      }
    })
    .sync();
  for await (const _ of caller.stream("endless", null, { window: 2 })) break;
  await cleaned.promise;
  await end();
});

test("ONCE-6 a store is asked before a handler runs, and a second life of the process does not run an intent twice", async () => {
  const dedupe = new MemoryStore();
  let runs = 0;
  const handler = (): number => (runs += 1);
  const first = await pair({ dedupe });
  await first.provider.provide("once", handler).sync();
  assert.equal(await first.caller.call("once", null, { requestId: "r" }), 1);
  await first.end();
  const second = await pair({ dedupe });
  await second.provider.provide("once", handler).sync();
  assert.equal(await second.caller.call("once", null, { requestId: "r" }), 1);
  assert.equal(await second.caller.call("once", null, { requestId: "s" }), 2);
  await second.end();
});

test("ONCE-6 a store that fails is passed over with a warning", async () => {
  const warnings: string[] = [];
  const dedupe = {
    get: () => Promise.reject(new Error("down")),
    set: () => {
      throw new Error("down");
    },
  };
  const { provider, caller, end } = await pair({
    dedupe,
    log: (level, text) => level === "warn" && warnings.push(text),
  });
  await provider.provide("works", () => 1).sync();
  assert.equal(await caller.call("works"), 1);
  await provider.sync();
  assert.equal(warnings.length, 2);
  await end();
});

test("a store in memory forgets the oldest past its bound", () => {
  const store = new MemoryStore(100);
  for (const key of ["a", "b", "c"]) store.set(key, new Uint8Array(40));
  assert.deepEqual([store.get("a"), store.get("c")?.length], [undefined, 40]);
});

test("LIVE-5 a health hook is asked, one that fails counts as 0, and the hub is told within what the wire takes", async () => {
  const hub = new FakeHub();
  const agent = await hub.agent("patient", { health: () => Promise.reject(new Error("ill")) });
  agent.setLoad({ cpu: 7, levels: { work: 0.5 } });
  await agent.sync();
  assert.deepEqual(hub.loadOf("patient"), { cpu: 1, health: 0, in_flight: 0, levels: [["work", 0.5]] });
  await agent.close();
});

test("CALL-2 options are said in the header, and what is not set is not", () => {
  const options = {
    timeoutMs: 1,
    acceptTimeoutMs: 2,
    budgetMs: 3,
    preferredTimeoutMs: 4,
    requestId: "r",
    keepMs: 5,
    agents: ["a"],
    labels: { l: "1" },
    require: { q: "2" },
    version: "^1",
    policy: "random",
    priority: "low",
    queue: false,
    waitForAgentMs: 6,
    retries: 7,
    allowFallback: true,
    allowCachedMs: 8,
    expectedOutput: {},
    affinityKey: "k",
    traceparent: "t",
    tracestate: "s",
    callbackUrl: "https://h/",
    replyTo: "agent:b",
    private: { "x-a": 1 },
    signal: new AbortController().signal,
  } as const;
  const spec = specOf("a.b", EMPTY, { ...options, agents: ["a"] }, undefined, 9);
  const call = { ...spec.header, id: 1, budget_ms: spec.budget, stream: true, credit: 9 };
  const { header } = decodeToHub(encodeToHub(Kind.Call, call));
  assert.deepEqual(header, {
    id: 1,
    request_id: "r",
    keep_ms: 5,
    capability: "a.b",
    version: "^1",
    agents: ["a"],
    policy: "random",
    labels: [["l", "1"]],
    require: [["q", "2"]],
    stream: true,
    credit: 9,
    accept_timeout_ms: 2,
    timeout_ms: 1,
    budget_ms: 3,
    preferred_timeout_ms: 4,
    priority: "low",
    retries: 7,
    allow_fallback: true,
    allow_cached_ms: 8,
    queue: false,
    wait_ms: 6,
    affinity_key: "k",
    expected_output: new Uint8Array([0x80]),
    traceparent: "t",
    tracestate: "s",
    callback_url: "https://h/",
    reply_to: "agent:b",
    private: [["x-a", new Uint8Array([1])]],
  });
  const plain = specOf("a.b", EMPTY, {}, undefined, undefined);
  assert.deepEqual(decodeToHub(encodeToHub(Kind.Call, { ...plain.header, id: 1 })).header, { id: 1, capability: "a.b" });
});

test("CALL-5 wrong options fail before anything is sent", async () => {
  const { caller, end } = await pair();
  const wrong = [
    { requestId: "" },
    { requestId: "x".repeat(129) },
    { private: { own: 1 } },
    { private: { "x-a": "x".repeat(17_000) } },
    { timeoutMs: -1 },
    { timeoutMs: 1.5 },
    { labels: { "\ud800": "x" } },
    { traceparent: "x".repeat(5000) },
    { agents: [] },
  ];
  for (const options of wrong) {
    assert.throws(
      () => caller.call("a", null, options),
      { code: "invalid_request", accepted: "no" },
      JSON.stringify(options).slice(0, 50),
    );
  }
  assert.throws(() => caller.call("a", () => 1), { code: "invalid_request" });
  assert.throws(() => caller.call(""), { code: "invalid_request" });
  await end();
});

test("CALL-8 a signal that is aborted already sends nothing", async () => {
  const { caller, end } = await pair();
  const error = await failure(caller.call("a", null, { signal: AbortSignal.abort() }));
  assert.deepEqual([error.code, error.accepted], ["cancelled", "no"]);
  await end();
});

test("a call that nobody waits for and that fails does not end the process", async () => {
  const { caller, end } = await pair();
  caller.call("nothing");
  await caller.sync();
  await end();
});

test("BACK-4 ERR-3 an agent whose session is ended for good says why, and so do its calls", async () => {
  const { hub, provider, caller } = await pair();
  const never = signalled();
  await provider.provide("never", () => never.promise).sync();
  const open = failure(caller.call("never"));
  const inbox = caller.inbox.next();
  hub.goodbye("caller", "unauthorized");
  assert.deepEqual(
    [(await caller.closed()).code, (await open).code, (await inbox).done],
    ["unauthorized", "closed", true],
  );
  assert.equal((await failure(caller.submit("never"))).code, "closed");
  assert.equal((await failure(caller.task("t").result())).code, "closed");
  never.now();
  await provider.close();
});

test("DISC-2 a directory says that it is not fresh while the connection is away, and is anew after it", async () => {
  const { hub, provider, caller, end } = await pair();
  const directory = new Directory(caller);
  await directory.until((now) => now.isFresh && now.get("provider") !== undefined);
  const stale = directory.until((now) => !now.isFresh);
  hub.disconnect("caller");
  await stale;
  await provider.provide("new", () => 1).sync();
  await directory.until((now) => now.isFresh && now.offering("new").length === 1);
  await end();
  assert.equal(directory.isFresh, false);
});

test("CONN-1 the port and the path are added where there are none, and other addresses are refused", () => {
  assert.equal(addressOf("wss://hub.example"), "wss://hub.example:7443/v1/connect");
  assert.equal(addressOf("wss://hub.example:443/"), "wss://hub.example:443/v1/connect");
  assert.equal(addressOf("ws://[::1]:5/own"), "ws://[::1]:5/own");
  for (const text of ["", "https://hub", "hub:7443", "wss://", "wss://a b", "wss://u:p@h", "wss://h:x"]) {
    assert.throws(() => addressOf(text), { kind: "config" }, text);
  }
});
