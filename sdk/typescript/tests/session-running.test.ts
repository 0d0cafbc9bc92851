import assert from "node:assert/strict";
import { test } from "node:test";

import { Kind } from "../src/frames/index.js";
import type { Outcome, RunKey } from "../src/session/types.js";
import { ok, Rig, value } from "./support/rig.js";

const failed = (code: string, retryable = false): Outcome => ({ failure: { code, message: "m", retryable } });

/** The run that began since the last look. */
function begun(rig: Rig): RunKey {
  const [run] = rig.doneOf("run");
  assert.ok(run !== undefined, "no handler began");
  return run.call.run;
}

function finish(rig: Rig, run: RunKey, outcome: Outcome = ok(1)): void {
  rig.input({ is: "finished", run, outcome });
}

test("PROV-5 ACCEPT is held back for 5 ms, and a RESULT that comes first stands for it", () => {
  const rig = Rig.ready();
  rig.call(7);
  rig.pass(4);
  finish(rig, begun(rig));
  rig.pass(100);
  assert.deepEqual(
    rig.sent().map((frame) => frame.kind),
    [Kind.Result],
  );
  rig.call(8, { request_id: "s" });
  rig.pass(5);
  assert.deepEqual(
    rig.sent().map((frame) => frame.kind),
    [Kind.Accept],
  );
});

test("PROV-5 the end of one call does not hasten the ACCEPT of another", () => {
  const rig = Rig.ready();
  rig.call(7);
  rig.call(8, { request_id: "s" });
  finish(rig, begun(rig));
  assert.deepEqual(
    rig.sent().map((frame) => frame.kind),
    [Kind.Result],
  );
  rig.pass(5);
  assert.deepEqual(rig.sentOf(Kind.Accept), [{ id: 8 }]);
});

test("PROV-4 a call past max_concurrency is refused with overloaded", () => {
  const rig = Rig.ready({ max: 1 });
  rig.call(7);
  rig.call(8, { request_id: "s" });
  const [result] = rig.sentOf(Kind.Result);
  assert.deepEqual([result?.id, result?.error?.code, result?.error?.retryable], [8, "overloaded", true]);
});

test("PROV-4 calls past the bound of a capability wait in order, and ACCEPT says how many are before them", () => {
  const rig = Rig.ready();
  rig.input({ is: "add", offer: { header: { name: "work" }, most: 1 } });
  for (const id of [1, 2, 3]) rig.call(id, { request_id: `r${id}` });
  const first = begun(rig);
  rig.pass(5);
  assert.deepEqual(
    rig.sentOf(Kind.Accept).map(({ id, queue_depth }) => [id, queue_depth]),
    [
      [1, undefined],
      [2, 0],
      [3, 1],
    ],
  );
  finish(rig, first);
  const second = rig.doneOf("run");
  assert.deepEqual(
    second.map(({ call }) => call.header.id),
    [2],
  );
});

test("PROV-7 a capability without handler is unsupported, PROV-14 an unreadable CALL is invalid_request", () => {
  const rig = Rig.ready();
  rig.call(7, { capability: "other" });
  // {id: 8}, and nothing else.
  rig.input({ is: "message", message: Buffer.from("930a81a2696408c0", "hex") });
  assert.deepEqual(
    rig.sentOf(Kind.Result).map(({ id, error }) => [id, error?.code]),
    [
      [7, "unsupported"],
      [8, "invalid_request"],
    ],
  );
});

test("PROV-8 a result over max_message becomes handler_error", () => {
  const rig = Rig.ready();
  rig.call(7);
  finish(rig, begun(rig), { payload: { bytes: new Uint8Array(1000) } });
  assert.equal(rig.sentOf(Kind.Result)[0]?.error?.code, "handler_error");
});

test("PROV-9 CANCEL tells the handler, and one that takes no notice is answered for after 5 s and holds its place", () => {
  const rig = Rig.ready({ max: 1 });
  rig.call(7);
  const run = begun(rig);
  rig.hub(Kind.Cancel, { id: 7 });
  assert.equal(rig.doneOf("cancelRun").length, 1);
  rig.pass(4999);
  assert.equal(rig.sentOf(Kind.Result).length, 0);
  rig.pass(1);
  assert.equal(rig.sentOf(Kind.Result)[0]?.error?.code, "cancelled");
  rig.call(8, { request_id: "s" });
  assert.equal(rig.sentOf(Kind.Result)[0]?.error?.code, "overloaded");
  finish(rig, run);
  rig.call(9, { request_id: "s" });
  begun(rig);
});

test("PROV-9 a handler that was cancelled and failed is answered with cancelled, one that completed with its result", () => {
  for (const [outcome, status] of [
    [failed("handler_error"), "failed"],
    [ok(1), "completed"],
  ] as const) {
    const rig = Rig.ready();
    rig.call(7);
    const run = begun(rig);
    rig.hub(Kind.Cancel, { id: 7 });
    finish(rig, run, outcome);
    const [result] = rig.sentOf(Kind.Result);
    assert.deepEqual([result?.status, result?.error?.code], [status, status === "failed" ? "cancelled" : undefined]);
  }
});

test("PROV-10 chunks leave within the credit, and the end waits for the last of them", () => {
  const rig = Rig.ready();
  rig.call(7, { stream: true, credit: 2 });
  const run = begun(rig);
  for (let i = 0; i < 3; i++) rig.input({ is: "emit", run, payload: { bytes: value(i) } });
  finish(rig, run);
  assert.deepEqual(
    rig.sent().map((frame) => frame.kind),
    [Kind.Chunk, Kind.Chunk],
  );
  rig.hub(Kind.Credit, { id: 7, n: 1 });
  assert.deepEqual(
    rig.sent().map((frame) => frame.kind),
    [Kind.Chunk, Kind.Result],
  );
});

test("PROV-12 a wish that will be missed is told with ACCEPT", () => {
  const rig = Rig.ready();
  rig.call(1, { request_id: "a" });
  const first = begun(rig);
  rig.pass(8000);
  finish(rig, first);
  rig.sent();
  rig.call(2, { request_id: "b", preferred_timeout_ms: 2000 });
  rig.pass(5);
  assert.deepEqual(rig.sentOf(Kind.Accept), [{ id: 2, would_timeout: true, wait_ms: 8000 }]);
  rig.input({ is: "wouldTake", run: begun(rig), ms: 3000 });
  assert.deepEqual(rig.sentOf(Kind.Accept), [{ id: 2, would_timeout: true, wait_ms: 3000 }]);
});

test("PROV-11 ACCEPT of a task says with depth 0 that its handler has begun", () => {
  const rig = Rig.ready();
  rig.input({ is: "add", offer: { header: { name: "work" }, most: 1 } });
  for (const id of [1, 2]) rig.call(id, { request_id: `r${id}`, mode: "task", task_id: `t${id}` });
  const first = begun(rig);
  rig.pass(5);
  assert.deepEqual(
    rig.sentOf(Kind.Accept).map(({ id, queue_depth }) => [id, queue_depth]),
    [
      [1, 0],
      [2, undefined],
    ],
  );
  finish(rig, first);
  assert.deepEqual(
    rig.sentOf(Kind.Accept).map(({ id, queue_depth }) => [id, queue_depth]),
    [[2, 0]],
  );
});

test("ONCE-1 a repeated call joins the handler that runs, and its stream begins again at 0", () => {
  const rig = Rig.ready();
  rig.call(7, { stream: true, credit: 2 });
  const run = begun(rig);
  rig.input({ is: "emit", run, payload: { bytes: value(0) } });
  rig.sent();
  rig.call(8, { stream: true, credit: 5, attempt: 2 });
  assert.equal(rig.doneOf("run").length, 0);
  rig.input({ is: "emit", run, payload: { bytes: value(1) } });
  finish(rig, run);
  const frames = rig.sent().filter((frame) => frame.kind !== Kind.Accept);
  assert.deepEqual(
    frames.map(({ kind, header }) => [kind, "id" in header ? header.id : 0, "seq" in header ? header.seq : undefined]),
    [
      [Kind.Chunk, 8, 0],
      [Kind.Chunk, 8, 1],
      [Kind.Result, 8, undefined],
    ],
  );
});

test("ONCE-1 two callers may use one request id, and so may two capabilities", () => {
  const rig = Rig.ready();
  rig.input({ is: "add", offer: { header: { name: "other" }, most: undefined } });
  rig.call(1);
  rig.call(2, { caller: "she" });
  rig.call(3, { capability: "other" });
  assert.equal(rig.doneOf("run").length, 3);
});

test("ONCE-2 an intent that has ended is answered from memory for 10 min", () => {
  const rig = Rig.ready();
  rig.call(7);
  finish(rig, begun(rig), ok("done"));
  rig.sent();
  for (let i = 0; i < 59; i++) {
    rig.pass(10_000);
    rig.input({ is: "alive" });
  }
  rig.sent();
  rig.call(8);
  assert.equal(rig.doneOf("run").length, 0);
  const [again] = rig.sent();
  assert.deepEqual([again?.kind, again?.body], [Kind.Result, value("done")]);
  rig.pass(10_000);
  rig.call(9);
  begun(rig);
});

test("ONCE-2 a failure that is retryable or cancelled runs again, any other does not", () => {
  for (const [outcome, runs] of [
    [failed("handler_error", true), true],
    [failed("cancelled"), true],
    [failed("handler_error"), false],
  ] as const) {
    const rig = Rig.ready();
    rig.call(7);
    finish(rig, begun(rig), outcome);
    rig.call(8);
    assert.equal(rig.doneOf("run").length, runs ? 1 : 0);
  }
});

test("ONCE-3 a handler goes on while the connection is away, and its end waits for the hub to ask again", () => {
  const rig = Rig.ready();
  rig.call(7);
  const run = begun(rig);
  rig.lose();
  finish(rig, run, ok("done"));
  rig.pass(1000);
  rig.welcome();
  assert.equal(rig.sentOf(Kind.Result).length, 0);
  rig.call(70, { attempt: 2 });
  const [answer] = rig.sent();
  assert.deepEqual([answer?.kind, answer?.body], [Kind.Result, value("done")]);
});

test("ONCE-3 a handler whose hub does not come back is cancelled at its deadline, 30 s after the loss at the earliest", () => {
  const rig = Rig.ready();
  rig.call(7, { deadline_ms: 1000 });
  rig.lose();
  rig.done();
  rig.pass(29_999);
  assert.equal(rig.doneOf("cancelRun").length, 0);
  rig.pass(1);
  assert.equal(rig.doneOf("cancelRun").length, 1);
});

test("ONCE-4 a call that comes again while its handler is being cancelled runs after that one, never beside it", () => {
  const rig = Rig.ready();
  rig.call(7);
  const run = begun(rig);
  rig.hub(Kind.Cancel, { id: 7 });
  rig.call(8, { attempt: 2 });
  rig.pass(14_000);
  assert.equal(rig.doneOf("run").length, 0);
  rig.sent();
  finish(rig, run, failed("handler_error"));
  const again = begun(rig);
  finish(rig, again, ok(2));
  assert.deepEqual(
    rig.sentOf(Kind.Result).map(({ id, status }) => [id, status]),
    [[8, "completed"]],
  );
});

test("ONCE-5 a stream whose beginning is no longer kept cannot be told again", () => {
  const rig = Rig.ready({}, { max_message: 2_000_000 });
  rig.call(7, { stream: true, credit: 100 });
  const run = begun(rig);
  for (let i = 0; i < 3; i++) rig.input({ is: "emit", run, payload: { bytes: new Uint8Array(600_000) } });
  rig.sent();
  rig.call(8, { stream: true, credit: 100, attempt: 2 });
  assert.equal(rig.sentOf(Kind.Result)[0]?.error?.code, "handler_error");
});

test("ONCE-6 a store of the program's is asked before a handler runs, and given what is final", () => {
  const rig = Rig.ready({ hasStore: true });
  rig.call(7);
  const [asked] = rig.doneOf("recall");
  assert.equal(asked?.intent, "you\0work\0r");
  rig.input({ is: "recalled", run: asked.run, served: { outcome: ok("before"), chunks: [], executionMs: 5 } });
  assert.deepEqual(rig.sent()[0]?.body, value("before"));
  rig.call(8, { request_id: "s" });
  const [other] = rig.doneOf("recall");
  rig.input({ is: "recalled", run: other!.run, served: undefined });
  finish(rig, begun(rig), ok("now"));
  assert.deepEqual(
    rig.doneOf("keep").map(({ intent }) => intent),
    ["you\0work\0s"],
  );
});

test("LIVE-4 the load says what runs and what waits", () => {
  const rig = Rig.ready();
  rig.input({ is: "add", offer: { header: { name: "work" }, most: 1 } });
  for (const id of [1, 2, 3]) rig.call(id, { request_id: `r${id}` });
  rig.pass(3334);
  assert.deepEqual(rig.sentOf(Kind.Update).at(-1)?.load, { in_flight: 1, queued: 2 });
});
