import assert from "node:assert/strict";
import { test } from "node:test";

import { ConnectError } from "../src/errors.js";
import { Kind } from "../src/frames/index.js";
import { Backoff } from "../src/session/backoff.js";
import { Rig } from "./support/rig.js";

const io = new ConnectError("io", "refused");

test("CONN-3 CONN-8 HELLO comes first and names every capability, and nothing else leaves before WELCOME", () => {
  const rig = new Rig();
  rig.input({ is: "add", offer: { header: { name: "work" }, most: undefined } });
  rig.open(1);
  rig.input({ is: "start" });
  assert.deepEqual(rig.doneOf("dial").length, 1);
  rig.input({ is: "opened" });
  const [hello, ...rest] = rig.sent();
  assert.equal(rest.length, 0);
  assert.equal(hello?.kind, Kind.Hello);
  assert.deepEqual(hello.header.capabilities, [{ name: "work" }]);
  rig.hub(Kind.Welcome, {
    session: "s",
    hub: "h",
    features: [],
    keepalive_ms: 5000,
    suspect_ms: 15_000,
    gone_ms: 30_000,
    max_message: 1000,
    max_in_flight: 4,
    granted: { provide: [], call: [] },
    warnings: ["careful"],
  });
  assert.equal(rig.doneOf("warn")[0]?.text, "the hub warns: careful");
  assert.equal(rig.sent()[0]?.kind, Kind.Call);
});

test("CONN-3 a hub that does not answer HELLO within 10 s is left, and so is one that says something else first", () => {
  const silent = new Rig();
  silent.input({ is: "start" });
  silent.input({ is: "opened" });
  silent.pass(9_999);
  assert.equal(silent.doneOf("abort").length, 0);
  silent.pass(1);
  assert.equal(silent.doneOf("abort").length, 1);
  const rude = new Rig();
  rude.input({ is: "start" });
  rude.input({ is: "opened" });
  rude.hub(Kind.Credit, { id: 1, n: 1 });
  assert.equal(rude.doneOf("abort").length, 1);
});

test("CONN-6 an HTTP refusal is final, a failure of the network or of TLS is not", () => {
  for (const [error, isFinal] of [
    [new ConnectError("http", "", 403), true],
    [new ConnectError("http", "", 429), false],
    [new ConnectError("http", "", 503), false],
    [new ConnectError("tls", ""), false],
    [io, false],
  ] as const) {
    const rig = new Rig();
    rig.input({ is: "start" });
    rig.input({ is: "dialFailed", error });
    assert.equal(rig.doneOf("stopped").length, isFinal ? 1 : 0, String(error.code ?? error.kind));
  }
});

test("CONN-7 what is no envelope costs the connection, an unknown kind nothing", () => {
  const rig = Rig.ready();
  rig.input({ is: "message", message: new Uint8Array([0x93, 99, 0x80, 0xc0]) });
  rig.hub(Kind.Cancel, { id: 99 });
  assert.equal(rig.doneOf("abort").length, 0);
  rig.input({ is: "message", message: new Uint8Array([0xc1]) });
  assert.equal(rig.doneOf("abort").length, 1);
  const text = Rig.ready();
  text.input({ is: "text" });
  assert.equal(text.doneOf("abort").length, 1);
});

test("BACK-1 ceilings double from one second to sixty, and waits are spread over all of it", () => {
  const backoff = new Backoff();
  const ceilings = Array.from({ length: 8 }, () => {
    const { window } = backoff;
    assert.equal(
      backoff.next(() => 0.25),
      window / 4,
    );
    return window;
  });
  assert.deepEqual(ceilings, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
});

test("BACK-2 only a session that lived half of gone_ms makes the waits short again", () => {
  const waits = (life: number): number => {
    const rig = Rig.ready();
    for (let i = 0; i < 4; i++) {
      rig.lose();
      rig.pass(rig.session.nextTimeout - rig.now);
      rig.welcome();
    }
    rig.pass(life);
    rig.lose();
    return rig.session.nextTimeout - rig.now;
  };
  assert.equal(waits(14_000), 8000);
  assert.equal(waits(15_000), 500);
});

test("BACK-3 after GOODBYE draining the agent comes back within the window, and open calls may end before", () => {
  const rig = Rig.ready();
  rig.open(1);
  rig.hub(Kind.Goodbye, { code: "draining", reconnect_after_ms: 20_000 });
  rig.open(2);
  const sent = rig.sentOf(Kind.Call);
  assert.equal(sent.length, 1);
  assert.equal(rig.doneOf("close").length, 0);
  rig.hub(Kind.Result, { id: sent[0]!.id, status: "completed" });
  const done = rig.done();
  assert.ok(done.some((effect) => effect.do === "close"));
  rig.lose(4000);
  assert.equal(rig.session.nextTimeout, 10_000);
  rig.pass(10_000);
  rig.welcome();
  assert.equal(rig.sentOf(Kind.Call).length, 1);
});

test("BACK-3 a hub that leaves and does not close is left after 15 s", () => {
  const rig = Rig.ready();
  rig.open(1);
  rig.sent();
  rig.hub(Kind.Goodbye, { code: "draining" });
  for (let i = 0; i < 3; i++) {
    rig.pass(4_900);
    rig.input({ is: "alive" });
  }
  assert.equal(rig.doneOf("abort").length, 0);
  rig.pass(300);
  assert.equal(rig.doneOf("abort").length, 1);
});

test("BACK-4 a final GOODBYE ends the agent, and all its calls fail with closed", () => {
  for (const code of ["replaced", "unauthorized", "normal", "message_too_large", "credentials_revoked"]) {
    const rig = Rig.ready();
    rig.open(1);
    rig.hub(Kind.Goodbye, { code, reason: "so" });
    const done = rig.done();
    const stopped = done.find((effect) => effect.do === "stopped");
    assert.equal(stopped?.reason.code, code);
    assert.ok(
      done.some(
        (effect) =>
          effect.do === "tell" &&
          effect.event.is === "ended" &&
          "error" in effect.event.end &&
          effect.event.end.error.code === "closed",
      ),
    );
    assert.equal(rig.session.nextTimeout, Infinity);
    rig.open(2);
    assert.equal(rig.endOf(2)?.code, "closed");
  }
});

test("BACK-4 a close code of 4500 on ends the agent, BACK-5 all others lead back", () => {
  for (const [code, ends] of [
    [4500, true],
    [4999, true],
    [4499, false],
    [1000, false],
    [1011, false],
    [undefined, false],
  ] as const) {
    const rig = Rig.ready();
    rig.lose(code);
    assert.equal(rig.doneOf("stopped").length, ends ? 1 : 0, String(code));
  }
});

test("BACK-4 a GOODBYE of an unknown word goes by its close code", () => {
  for (const [code, ends] of [
    [4777, true],
    [4077, false],
  ] as const) {
    const rig = Rig.ready();
    rig.hub(Kind.Goodbye, { code: "new-word" });
    rig.lose(code);
    assert.equal(rig.doneOf("stopped").length, ends ? 1 : 0);
  }
});

test("BACK-6 PROV-13 HELLO says what is so now, whatever changed meanwhile", () => {
  const rig = Rig.ready();
  rig.lose();
  rig.input({ is: "add", offer: { header: { name: "new" }, most: undefined } });
  rig.input({ is: "remove", name: "work" });
  rig.input({ is: "setStatus", status: "degraded" });
  rig.input({ is: "setLoad", load: { health: 70 } });
  rig.pass(1000);
  rig.input({ is: "opened" });
  const [hello] = rig.sentOf(Kind.Hello);
  assert.deepEqual(hello?.capabilities, [{ name: "new" }]);
  assert.deepEqual([hello.status, hello.load], ["degraded", { health: 70, in_flight: 0 }]);
});

test("LIVE-1 LIVE-6 the agent is never silent for longer than two thirds of keepalive_ms", () => {
  const rig = Rig.ready();
  for (let i = 0; i < 100; i++) {
    rig.pass(3334);
    rig.input({ is: "alive" });
    assert.equal(rig.sentOf(Kind.Update).length, 1);
  }
});

test("LIVE-3 a hub that is silent is pinged, and given up half way to gone_ms", () => {
  const rig = Rig.ready();
  rig.pass(14_999);
  assert.equal(rig.doneOf("ping").length, 0);
  rig.pass(1);
  assert.equal(rig.doneOf("ping").length, 1);
  rig.pass(7_499);
  assert.equal(rig.doneOf("abort").length, 0);
  rig.pass(1);
  assert.equal(rig.doneOf("abort").length, 1);
});

test("LIVE-3 where sockets cannot ping a small call asks for a sign of life, also past max_in_flight", () => {
  const rig = Rig.ready({ canPing: false });
  for (let key = 1; key <= 6; key++) rig.open(key);
  rig.sent();
  rig.pass(15_000);
  const [probe] = rig.sentOf(Kind.Call);
  assert.equal(probe?.capability, "hub.agents.get");
  rig.hub(Kind.Result, {
    id: probe.id,
    status: "failed",
    error: { code: "unauthorized", message: "", retryable: false },
  });
  rig.pass(10_000);
  assert.equal(rig.doneOf("abort").length, 0);
});

test("LIVE-3 a timer that a hidden page held back for minutes does not take its own silence for the hub's", () => {
  const rig = Rig.ready({ canPing: false });
  rig.now += 180_000;
  rig.input({ is: "timeout" });
  assert.equal(rig.doneOf("abort").length, 0);
  const sent = rig.sent().map((frame) => frame.kind);
  assert.ok(sent.includes(Kind.Update) && sent.includes(Kind.Call));
  rig.now += 7_500;
  rig.input({ is: "timeout" });
  assert.equal(rig.doneOf("abort").length, 1);
});

test("waking up asks for a sign of life at once, and shortens the wait for a dial but not one that the hub asked for", () => {
  const open = Rig.ready();
  open.now += 6000;
  open.input({ is: "woke" });
  assert.equal(open.doneOf("ping").length, 1);
  const waiting = Rig.ready();
  for (let i = 0; i < 6; i++) {
    waiting.lose();
    waiting.pass(waiting.session.nextTimeout - waiting.now);
    waiting.input({ is: "opened" });
  }
  waiting.lose();
  assert.ok(waiting.session.nextTimeout - waiting.now > 10_000);
  waiting.input({ is: "woke" });
  assert.equal(waiting.session.nextTimeout - waiting.now, 500);
  // A connection that is closed just after the waking was lost in the sleep.
  waiting.pass(500);
  waiting.input({ is: "opened" });
  waiting.input({ is: "woke" });
  waiting.lose();
  assert.equal(waiting.session.nextTimeout - waiting.now, 500);
  const wished = Rig.ready();
  wished.hub(Kind.Goodbye, { code: "draining", reconnect_after_ms: 60_000 });
  wished.lose(4000);
  wished.input({ is: "woke" });
  assert.equal(wished.session.nextTimeout - wished.now, 30_000);
});

test("END-1 close takes the agent out of routing, lets handlers end, says GOODBYE and closes with 1000", () => {
  const rig = Rig.ready();
  rig.call(7);
  const [run] = rig.doneOf("run");
  rig.input({ is: "close", within: 10_000 });
  assert.equal(rig.sentOf(Kind.Update)[0]?.status, "draining");
  rig.pass(5000);
  assert.equal(rig.doneOf("close").length, 0);
  rig.input({ is: "finished", run: run!.call.run, outcome: { payload: { bytes: new Uint8Array() } } });
  assert.deepEqual(
    rig
      .sent()
      .filter((frame) => frame.kind !== Kind.Update)
      .map((frame) => frame.kind),
    [Kind.Accept, Kind.Result, Kind.Goodbye],
  );
  assert.equal(rig.doneOf("close")[0]?.code, 1000);
  rig.lose(1000);
  assert.equal(rig.doneOf("stopped")[0]?.reason.kind, "closed");
});

test("END-1 a handler that does not end is given up when the time is over, and a shorter time can be said later", () => {
  const rig = Rig.ready();
  rig.call(7);
  rig.input({ is: "close", within: 60_000 });
  rig.input({ is: "close", within: 1000 });
  rig.pass(999);
  rig.sent();
  rig.done();
  rig.pass(1);
  assert.equal(rig.doneOf("abortRun").length, 1);
  assert.deepEqual(
    rig.sent().map((frame) => frame.kind),
    [Kind.Result, Kind.Goodbye],
  );
});
