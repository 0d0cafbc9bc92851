import assert from "node:assert/strict";
import { test } from "node:test";

import { Kind } from "../src/frames/index.js";
import { Rig, value, WELCOME } from "./support/rig.js";

const task = { header: { capability: "a.b", mode: "task" as const } };
const nobody = (id: number | bigint) =>
  ({ id, status: "no_instance", error: { code: "no_instance", message: "", retryable: true } }) as const;

test("CALL-1 a call ends once, and what comes after is dropped", () => {
  const rig = Rig.ready();
  rig.open(1);
  const [call] = rig.sentOf(Kind.Call);
  rig.hub(Kind.Accept, { id: call!.id, target: "p" });
  rig.hub(Kind.Result, { id: call!.id, status: "completed" }, value(1));
  rig.hub(Kind.Result, { id: call!.id, status: "failed" });
  rig.hub(Kind.Chunk, { id: call!.id, seq: 0 }, value(1));
  assert.deepEqual(
    rig.told().map(([, event]) => event.is),
    ["accepted", "ended"],
  );
  assert.ok(rig.session.isEmpty);
});

test("CALL-3 made ids differ, are kept for 10 min, and one of the program's is sent as it is", () => {
  const rig = Rig.ready();
  rig.open(1);
  rig.open(2);
  rig.open(3, { header: { capability: "a.b", request_id: "mine" } });
  const [one, two, mine] = rig.sentOf(Kind.Call);
  assert.notEqual(one?.request_id, two?.request_id);
  assert.equal(one?.keep_ms, 600_000);
  assert.deepEqual([mine?.request_id, mine?.keep_ms], ["mine", undefined]);
});

test("CALL-5 a call over max_message is not sent, and the others are", () => {
  const rig = Rig.ready();
  rig.open(1, { payload: { bytes: new Uint8Array(1000) } });
  rig.open(2);
  assert.deepEqual(rig.sentOf(Kind.Call).length, 1);
  const { code, accepted } = rig.endOf(1)!;
  assert.deepEqual([code, accepted], ["payload_too_large", "no"]);
});

test("CALL-6 at most max_in_flight calls are on the wire, the others go out in order, and one past 1024 fails", () => {
  const rig = Rig.ready();
  for (let key = 1; key <= 4 + 1024; key++) rig.open(key);
  const sent = rig.sentOf(Kind.Call);
  assert.equal(sent.length, 4);
  rig.open(5000);
  const { code, accepted } = rig.endOf(5000)!;
  assert.deepEqual([code, accepted], ["overloaded", "no"]);
  rig.hub(Kind.Result, { id: sent[2]!.id, status: "completed" });
  assert.equal(rig.sentOf(Kind.Call).length, 1);
});

test("CALL-7 a call waits for a session as long as its budget, else 60 s, and is sent with what is left", () => {
  const rig = Rig.ready();
  rig.lose();
  rig.open(1, { budget: 5000 });
  rig.open(2);
  rig.open(3, { budget: 90_000 });
  rig.pass(4999);
  assert.equal(rig.endOf(1), undefined);
  rig.pass(1);
  const { code, accepted } = rig.endOf(1)!;
  assert.deepEqual([code, accepted], ["budget_exhausted", "no"]);
  rig.pass(55_000);
  assert.equal(rig.endOf(2)?.code, "budget_exhausted");
  rig.welcome();
  assert.equal(rig.sentOf(Kind.Call)[0]?.budget_ms, 30_000);
});

test("CALL-7 a hub that does not answer 5 s past the budget is not waited for", () => {
  const rig = Rig.ready();
  rig.open(1, { budget: 1000 });
  rig.sent();
  rig.pass(5999);
  assert.equal(rig.endOf(1), undefined);
  rig.pass(1);
  const { code, accepted } = rig.endOf(1)!;
  assert.deepEqual([code, accepted], ["budget_exhausted", "unknown"]);
  assert.equal(rig.sentOf(Kind.Cancel).length, 1);
});

test("CALL-8 letting go sends CANCEL, but nothing for a call that had not left", () => {
  const rig = Rig.ready();
  rig.open(1);
  rig.input({ is: "cancel", key: 1 });
  assert.equal(rig.endOf(1)?.accepted, "no");
  assert.deepEqual(rig.sent(), []);
  rig.open(2);
  const [call] = rig.sentOf(Kind.Call);
  rig.input({ is: "cancel", key: 2 });
  assert.equal(rig.endOf(2)?.accepted, "unknown");
  assert.deepEqual(rig.sentOf(Kind.Cancel), [{ id: call!.id }]);
});

test("CALL-8 withdrawing waits for what the provider says", () => {
  const rig = Rig.ready();
  rig.open(1);
  const [call] = rig.sentOf(Kind.Call);
  rig.input({ is: "withdraw", key: 1 });
  assert.deepEqual(rig.sentOf(Kind.Cancel), [{ id: call!.id, wait: true }]);
  assert.equal(rig.endOf(1), undefined);
  rig.hub(Kind.Result, { id: call!.id, status: "completed" });
  assert.equal(rig.endOf(1)?.code, "completed");
});

test("CALL-9 ERROR ends the call it names, an unreadable answer ends its call, and no other ends", () => {
  const rig = Rig.ready();
  for (const key of [1, 2, 3, 4]) rig.open(key);
  const [a, b, c] = rig.sentOf(Kind.Call);
  rig.hub(Kind.Error, { ref_kind: 10, id: a!.id, code: "invalid_request", message: "" });
  assert.equal(rig.endOf(1)?.code, "invalid_request");
  // status: 7, seq: "x".
  rig.input({ is: "message", message: Buffer.from(`930e82a26964${hex(b!.id)}a673746174757307c0`, "hex") });
  assert.equal(rig.endOf(2)?.code, "decode");
  rig.input({ is: "message", message: Buffer.from(`930c82a26964${hex(c!.id)}a3736571a178c0`, "hex") });
  assert.equal(rig.endOf(3)?.code, "interrupted");
  assert.equal(rig.endOf(4), undefined);
});

const hex = (id: number | bigint): string => Number(id).toString(16).padStart(2, "0");

test("STREAM-1 STREAM-2 a gap ends the call with interrupted, and a repetition is dropped with its credit given back", () => {
  const rig = Rig.ready();
  rig.open(1, { window: 4 });
  const [call] = rig.sentOf(Kind.Call);
  assert.equal(call?.credit, 4);
  rig.hub(Kind.Chunk, { id: call.id, seq: 0 }, value(0));
  rig.hub(Kind.Chunk, { id: call.id, seq: 0 }, value(0));
  assert.equal(rig.told().length, 1);
  assert.deepEqual(rig.sentOf(Kind.Credit), [{ id: call.id, n: 1 }]);
  rig.hub(Kind.Chunk, { id: call.id, seq: 2 }, value(2));
  const { code, accepted } = rig.endOf(1)!;
  assert.deepEqual([code, accepted], ["interrupted", "yes"]);
  assert.equal(rig.sentOf(Kind.Cancel).length, 1);
});

test("STREAM-5 after a reconnect the CALL grants what is left of the window, and a watch begins anew", () => {
  const rig = Rig.ready();
  rig.open(1, { window: 4 });
  rig.open(2, { window: 4, header: { capability: "hub.events.watch" } });
  for (const { id } of rig.sentOf(Kind.Call)) {
    for (let seq = 0; seq < 3; seq++) rig.hub(Kind.Chunk, { id, seq }, value(seq));
  }
  rig.input({ is: "consumed", key: 1, n: 1, target: undefined });
  rig.lose();
  rig.pass(1000);
  rig.welcome();
  const [stream, watch] = rig.sentOf(Kind.Call);
  assert.deepEqual([stream?.credit, watch?.credit], [2, 4]);
  rig.done();
  rig.hub(Kind.Chunk, { id: watch!.id, seq: 0 }, value("snapshot"));
  rig.hub(Kind.Chunk, { id: stream!.id, seq: 3 }, value(3));
  assert.deepEqual(
    rig.told().map(([key, event]) => [key, event.is]),
    [
      [2, "chunk"],
      [1, "chunk"],
    ],
  );
});

test("RESUME-1 open calls go out again under their request ids, the oldest first, with new ids", () => {
  const rig = Rig.ready();
  for (const key of [1, 2, 3]) rig.open(key);
  const before = rig.sentOf(Kind.Call);
  rig.hub(Kind.Result, { id: before[1]!.id, status: "completed" });
  rig.lose();
  rig.pass(1000);
  rig.welcome();
  const after = rig.sentOf(Kind.Call);
  assert.deepEqual(
    after.map((call) => call.request_id),
    [before[0]?.request_id, before[2]?.request_id],
  );
  assert.ok(after.every(({ id }) => before.every((call) => call.id !== id)));
});

test("RESUME-2 for 10 s after a return a call that was open is asked again when nobody is there", () => {
  const rig = Rig.ready();
  rig.open(1);
  rig.lose();
  rig.pass(1000);
  rig.welcome();
  rig.open(2);
  let asked = 0;
  for (let t = 0; t < 12_000; t += 50) {
    for (const call of rig.sentOf(Kind.Call)) {
      asked += 1;
      rig.hub(Kind.Result, nobody(call.id));
    }
    if (t === 0)
      assert.deepEqual(
        rig.told().map(([key]) => key),
        [2],
      );
    rig.pass(50);
  }
  assert.ok(asked > 10 && asked < 20, `${asked} times`);
  const { code, accepted } = rig.endOf(1)!;
  // A provider may have had it before the loss.
  assert.deepEqual([code, accepted], ["no_instance", "unknown"]);
});

test("RESUME-3 shutting_down that crosses a GOODBYE is not told: the next connection carries the call", () => {
  const rig = Rig.ready();
  rig.open(1);
  const [call] = rig.sentOf(Kind.Call);
  rig.hub(Kind.Goodbye, { code: "draining", reconnect_after_ms: 100 });
  rig.hub(Kind.Result, {
    id: call!.id,
    status: "failed",
    error: { code: "shutting_down", message: "", retryable: true },
  });
  assert.equal(rig.endOf(1), undefined);
  rig.lose(4000);
  rig.pass(1000);
  rig.welcome();
  assert.equal(rig.sentOf(Kind.Call)[0]?.request_id, call!.request_id);
});

test("RESUME-4 a task that the hub has stored is not sent again, and its result comes by itself", () => {
  const rig = Rig.ready();
  rig.open(1, task);
  const [call] = rig.sentOf(Kind.Call);
  rig.hub(Kind.Accept, { id: call!.id, task_id: "t" });
  rig.lose();
  rig.pass(1000);
  rig.welcome();
  assert.equal(rig.sentOf(Kind.Call).length, 0);
  rig.hub(Kind.Result, { status: "completed", task_id: "t", request_id: "r" }, value(1));
  assert.equal(rig.endOf(1)?.code, "completed");
  assert.deepEqual(rig.sentOf(Kind.Receipt), [{ task_id: "t" }]);
});

test("TASK-2 a result that comes again is given once, and has its receipt again", () => {
  const rig = Rig.ready();
  for (let i = 0; i < 3; i++) rig.hub(Kind.Result, { status: "completed", task_id: "t" }, value(1));
  assert.equal(rig.doneOf("arrived").length, 1);
  assert.equal(rig.sentOf(Kind.Receipt).length, 0);
  rig.input({ is: "received", taskId: "t" });
  rig.hub(Kind.Result, { status: "completed", task_id: "t" }, value(1));
  assert.equal(rig.doneOf("arrived").length, 0);
  assert.equal(rig.sentOf(Kind.Receipt).length, 2);
});

test("TASK-3 letting go of a stored task cancels nothing, TASK-4 and its result goes to the inbox", () => {
  const rig = Rig.ready();
  rig.open(1, task);
  const [call] = rig.sentOf(Kind.Call);
  rig.hub(Kind.Accept, { id: call!.id, task_id: "t" });
  rig.input({ is: "forget", key: 1 });
  assert.equal(rig.sentOf(Kind.Cancel).length, 0);
  rig.done();
  rig.hub(Kind.Result, { status: "completed", task_id: "t" }, value(1));
  assert.equal(rig.doneOf("arrived").length, 1);
  rig.input({ is: "claim", key: 2, taskId: "t" });
  assert.deepEqual(rig.doneOf("hand"), [{ do: "hand", key: 2, taskId: "t" }]);
});

test("TASK-4 the inbox holds 256 results, and leaves the others to the hub", () => {
  const rig = Rig.ready();
  for (let i = 0; i < 300; i++) rig.hub(Kind.Result, { status: "completed", task_id: `t${i}` }, value(1));
  assert.equal(rig.doneOf("arrived").length, 256);
});

test("ERR-2 accepted is what ACCEPT, code and attempts tell", () => {
  const cases = [
    [{ code: "handler_error" }, [], "yes"],
    [{ code: "overloaded" }, [], "no"],
    [{ code: "agent_lost" }, [], "unknown"],
    [{ code: "something-new" }, [], "unknown"],
    [{ code: "no_instance" }, [{ target: "p", outcome: "timeout", ms: 1, reason: "" }], "yes"],
    [{ code: "no_instance" }, [{ target: "p", outcome: "agent_lost", ms: 1, reason: "" }], "unknown"],
    [{ code: "degraded", details: value({ cause: { code: "overloaded", message: "full" } }) }, [], "no"],
  ] as const;
  for (const [error, attempts, accepted] of cases) {
    const rig = Rig.ready();
    rig.open(1);
    const [call] = rig.sentOf(Kind.Call);
    rig.hub(Kind.Result, {
      id: call!.id,
      status: "failed",
      error: { message: "", retryable: true, ...error },
      attempts: [...attempts],
    });
    assert.equal(rig.endOf(1)?.accepted, accepted, error.code);
  }
});

test("BOUND-1 no call is put behind 256 KiB that the socket has not taken", () => {
  const rig = Rig.ready({}, { max_message: 1_000_000, max_in_flight: 100 });
  const payload = { bytes: new Uint8Array(100_000) };
  for (let key = 1; key <= 10; key++) rig.open(key, { payload });
  let queued = 0;
  while (rig.session.pop() !== undefined) queued += 1;
  assert.equal(queued, 3);
  rig.input({ is: "wrote" });
  assert.equal(rig.sentOf(Kind.Call).length, 7);
});

test("BOUND-2 CANCEL and CREDIT overtake queued bodies, and never their own CALL", () => {
  const rig = Rig.ready();
  rig.open(1, { window: 4 });
  rig.sent();
  rig.open(2);
  rig.input({ is: "consumed", key: 1, n: 2, target: undefined });
  rig.input({ is: "cancel", key: 1 });
  assert.deepEqual(
    rig.sent().map((frame) => frame.kind),
    [Kind.Credit, Kind.Cancel, Kind.Call],
  );
});

test("CONN-5 the limits are those of WELCOME, and nonsense in it does no harm", () => {
  const rig = Rig.ready({}, { ...WELCOME, keepalive_ms: 0, suspect_ms: 0, gone_ms: 0, max_in_flight: 0 });
  rig.open(1);
  rig.open(2);
  assert.equal(rig.sentOf(Kind.Call).length, 1);
  assert.ok(rig.session.nextTimeout - rig.now >= 6);
});

/** The hub ends the connection as a slow consumer's, and the agent comes back. */
function cutOff(rig: Rig): void {
  rig.hub(Kind.Goodbye, { code: "slow_consumer" });
  rig.lose(4002);
  rig.pass(8000);
  rig.welcome();
}

test("BACK-7 after slow_consumer calls go out one after the other", () => {
  const rig = Rig.ready();
  for (let key = 1; key <= 4; key++) rig.open(key);
  assert.equal(rig.sentOf(Kind.Call).length, 4);
  cutOff(rig);
  const [first, ...none] = rig.sentOf(Kind.Call);
  assert.equal(none.length, 0);
  // The next one goes when one has ended ...
  rig.hub(Kind.Result, { id: first!.id, status: "completed" });
  const [second] = rig.sentOf(Kind.Call);
  // ... or when its pause is over.
  rig.pass(199);
  assert.equal(rig.sentOf(Kind.Call).length, 0);
  rig.pass(1);
  assert.equal(rig.sentOf(Kind.Call).length, 1);
  rig.pass(200);
  assert.equal(rig.sentOf(Kind.Call).length, 1);
  // Everything is out: what is new has no pause.
  rig.hub(Kind.Result, { id: second!.id, status: "completed" });
  rig.open(5);
  rig.open(6);
  assert.equal(rig.sentOf(Kind.Call).length, 2);
});

test("BACK-7 a call whose connection ends as a slow consumer's five times in a row fails", () => {
  const rig = Rig.ready();
  rig.open(1, { budget: 600_000 });
  cutOff(rig);
  cutOff(rig);
  rig.pass(20_000);
  for (let n = 0; n < 4; n++) {
    cutOff(rig);
    assert.equal(rig.endOf(1), undefined);
  }
  cutOff(rig);
  const { code, accepted } = rig.endOf(1)!;
  assert.deepEqual([code, accepted], ["overloaded", "unknown"]);
  assert.ok(rig.session.isEmpty);
});
