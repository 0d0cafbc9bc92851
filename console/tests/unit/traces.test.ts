import assert from "node:assert/strict";
import { test } from "node:test";

import { chosen } from "../../src/hub/sampler.ts";
import { lanesOf } from "../../src/pages/lanes.ts";
import { Traces, TRACES_MAX, triesOf } from "../../src/state/traces.ts";
import type { Step } from "../../src/state/views.ts";
import { call, trace } from "./views.ts";

const ROUTED: Step = {
  step: "routed",
  at_us: 0,
  candidates: { policy: "least_loaded", offering: 3, able: 1, excluded: { busy: 1, tripped: 1 } },
};
const RETRIED: Step[] = [
  ROUTED,
  { step: "given", at_us: 10, target: "a", attempt: 1 },
  { step: "accepted", at_us: 30, target: "a" },
  { step: "answered", at_us: 100, target: "a", outcome: "handler_error" },
  { step: "retry_in", at_us: 100, reason: "500 ms" },
  { step: "given", at_us: 600, target: "a", attempt: 2 },
  { step: "accepted", at_us: 650, target: "a" },
  { step: "first_chunk", at_us: 700, target: "a" },
  { step: "answered", at_us: 900, target: "a", outcome: "completed" },
  { step: "ended", at_us: 900, outcome: "completed" },
];

test("each try has its own times, also at the same agent", () => {
  assert.deepEqual(triesOf(RETRIED), [
    { target: "a", attempt: 1, given: 10, accepted: 30, answered: 100, outcome: "handler_error" },
    { target: "a", attempt: 2, given: 600, accepted: 650, firstChunk: 700, answered: 900, outcome: "completed" },
  ]);
});

test("an answer that stood for the ACCEPT does not count as one", () => {
  const quick: Step[] = [
    { step: "given", at_us: 0, target: "a" },
    { step: "accepted", at_us: 40, target: "a" },
    { step: "answered", at_us: 40, target: "a", outcome: "completed" },
  ];
  assert.equal(triesOf(quick)[0]?.accepted, undefined);
});

test("an agent that is lost ends its try", () => {
  const [one] = triesOf([
    { step: "given", at_us: 0, target: "a" },
    { step: "target_away", at_us: 70, target: "a" },
  ]);
  assert.deepEqual([one?.answered, one?.outcome], [70, "target_away"]);
});

test("sampled traces tell who was passed over", () => {
  const traces = new Traces();
  traces.put(trace("1", RETRIED));
  const { excluded, routed } = traces.figures();
  assert.deepEqual([...excluded], [["busy", 1], ["tripped", 1]]);
  assert.equal(routed, 1);
});

test("traces are bounded, and one that is asked for again takes no second place", () => {
  const traces = new Traces();
  for (let n = 0; n <= TRACES_MAX; n += 1) traces.put(trace(String(n), []));
  traces.put(trace("1", RETRIED));
  assert.equal(traces.size, TRACES_MAX);
  assert.equal(traces.get("0"), undefined);
  assert.equal(traces.get("1")?.steps.length, RETRIED.length);
});

test("a timeline has a lane for the hub's waiting and one for each try", () => {
  const { lanes, total } = lanesOf(RETRIED);
  assert.equal(total, 900);
  assert.deepEqual(lanes.map(({ name, note }) => [name, note]), [
    ["hub", "waiting"],
    ["a", "try 1 · handler_error"],
    ["a", "try 2 · completed"],
  ]);
  assert.deepEqual(lanes[0]?.parts.map(({ from, to }) => [from, to]), [[100, 600]]);
  assert.deepEqual(lanes[2]?.parts.map(({ kind, from, to }) => [kind, from, to]), [
    ["accept", 600, 650],
    ["process", 650, 900],
    ["chunk", 700, 700],
  ]);
});

test("the sample takes the failed and the slowest of what is new, and one like any other", () => {
  const row = (id: string, ms: number, outcome: string): Parameters<typeof chosen>[0] extends Iterable<infer R> ? R : never => ({
    id,
    view: call(id),
    began: 0,
    ms,
    outcome,
  });
  const ended = [row("any", 1, "completed"), row("slow", 90, "completed"), row("b", 2, "completed"), row("c", 3, "completed"), row("bad", 1, "timeout"), row("old", 1, "timeout")];
  assert.deepEqual(chosen(ended, 5).map(({ id }) => id), ["any", "bad", "slow", "c"]);
  assert.deepEqual(chosen(ended, 0), []);
});
