import assert from "node:assert/strict";
import { test } from "node:test";

import { filtered } from "../../src/state/agents.ts";
import { ENDED_MAX, filteredCalls, OPEN_MAX, worstFirst } from "../../src/state/calls.ts";
import { TASKS_MAX } from "../../src/state/tasks.ts";
import { World, type Topic } from "../../src/state/world.ts";
import { agent, call, task } from "./views.ts";

function world(): { it: World; touched: Topic[] } {
  const touched: Topic[] = [];
  return { it: new World((topic) => touched.push(topic)), touched };
}

const ids = (rows: Iterable<{ id: string }>): string[] => [...rows].map(({ id }) => id);

test("a snapshot in parts holds from its last part on, and replaces what was known", () => {
  const { it } = world();
  it.take({ event: "agent.connected", agent: agent("old") }, 0);
  assert.equal(it.take({ event: "snapshot", agents: [agent("a")], calls: [call("1")], more: true }, 0), false);
  assert.deepEqual(ids(it.agents.rows()), ["old"]);
  assert.equal(it.take({ event: "snapshot", agents: [agent("b")], tasks: [task("t", "QUEUED")] }, 0), true);
  assert.deepEqual(ids(it.agents.rows()), ["a", "b"]);
  assert.deepEqual([...it.calls.open.keys()], ["1"]);
  assert.deepEqual(ids(it.tasks.rows()), ["t"]);
});

test("a snapshot that broke off leaves what was known", () => {
  const { it } = world();
  it.take({ event: "snapshot", agents: [agent("a")] }, 0);
  it.take({ event: "snapshot", agents: [agent("b")], more: true }, 0);
  it.broken();
  assert.deepEqual(ids(it.agents.rows()), ["a"]);
  it.take({ event: "snapshot", agents: [agent("c")] }, 0);
  assert.deepEqual(ids(it.agents.rows()), ["c"]);
});

test("agents come, change and leave, and each change says what it touched", () => {
  const { it, touched } = world();
  it.take({ event: "agent.connected", agent: agent("a") }, 1);
  it.take({ event: "agent.changed", agent: agent("a", { status: "draining" }) }, 2);
  assert.equal(it.agents.get("a")?.view.status, "draining");
  it.take({ event: "agent.disconnected", agent_id: "a", reason: "normal" }, 3);
  assert.equal(it.agents.size, 0);
  assert.deepEqual(touched, ["agents", "agents", "agents"]);
});

test("newer figures of the list bring nobody back who has left", () => {
  const { it } = world();
  it.agents.put(agent("a"), 0);
  it.agents.refresh([agent("a", { in_flight: 3 }), agent("gone")], 1);
  assert.deepEqual(ids(it.agents.rows()), ["a"]);
  assert.equal(it.agents.get("a")?.view.in_flight, 3);
});

test("a search takes agents that have each of its words somewhere", () => {
  const { it } = world();
  it.agents.put(agent("mail-1", { labels: { region: "eu" }, capabilities: ["mail.send"] }), 0);
  it.agents.put(agent("mail-2", { labels: { region: "us" }, status: "suspect" }), 0);
  assert.deepEqual(ids(filtered(it.agents.rows(), { search: "MAIL region=EU", status: "" })), ["mail-1"]);
  assert.deepEqual(ids(filtered(it.agents.rows(), { search: "", status: "suspect" })), ["mail-2"]);
});

test("a search finds a capability that an agent of the same instance has changed", () => {
  const { it } = world();
  it.agents.put(agent("a", { capabilities: ["one.thing"] }), 0);
  it.agents.put(agent("a", { capabilities: ["other.thing"] }), 1);
  assert.deepEqual(ids(filtered(it.agents.rows(), { search: "other", status: "" })), ["a"]);
});

test("a call is open until it has ended, and counts for its second, its capability and its targets", () => {
  const { it } = world();
  it.take({ event: "call.started", call: call("1") }, 10_000);
  assert.equal(it.calls.open.size, 1);
  it.take({ event: "call.ended", call: call("1", { age_ms: 40 }), outcome: "timeout" }, 10_040);
  assert.equal(it.calls.open.size, 0);
  const row = it.calls.get("1");
  assert.deepEqual([row?.outcome, row?.ms, row?.began, row?.ended], ["timeout", 40, 10_000, 10_040]);
  const [second] = it.calls.seconds.before(11_000, 60);
  assert.deepEqual([second?.started, second?.completed, second?.failed], [1, 0, 1]);
  assert.equal(it.calls.capabilities.get("work")?.failed, 1);
  assert.equal(it.calls.figuresOf("provider")?.success, 0);
});

test("a refused call is among those that failed, and says nothing of times and of who does the work", () => {
  const { it, touched } = world();
  const refused = { call_id: "1", request_id: "r", caller: "c", capability: "made-up" };
  it.take({ event: "call.refused", call: refused, outcome: "no_capability", left_out: 7 }, 10_000);
  assert.deepEqual(touched, ["calls"]);
  assert.deepEqual(ids(filteredCalls(it.calls, { search: "made-up no_capability", which: "failed" }, 10_000)), ["1"]);
  const [second] = it.calls.seconds.before(11_000, 60);
  assert.deepEqual([second?.failed, second?.times.total], [1, 0]);
  assert.equal(it.calls.capabilities.get("made-up"), undefined);
  assert.equal(it.calls.untold, 7);
  assert.equal(it.calls.get("1")?.view.state, "refused");
});

test("ended calls are bounded, and the oldest is forgotten by its id as well", () => {
  const { it } = world();
  for (let n = 0; n <= ENDED_MAX; n += 1) it.calls.finished(call(String(n)), "completed", n);
  assert.equal(it.calls.ended.length, ENDED_MAX);
  assert.equal(it.calls.get("0"), undefined);
  assert.notEqual(it.calls.get("1"), undefined);
});

test("open calls are bounded, and what has no room is counted", () => {
  const { it } = world();
  for (let n = 0; n < OPEN_MAX + 3; n += 1) it.calls.started(call(String(n)), n);
  assert.equal(it.calls.open.size, OPEN_MAX);
  assert.equal(it.calls.leftOut, 3);
});

test("worst first means failed calls, the newest before, and then the slow ones", () => {
  const { it } = world();
  it.calls.finished(call("quick", { age_ms: 1 }), "completed", 1);
  it.calls.finished(call("slow", { age_ms: 900 }), "completed", 2);
  it.calls.finished(call("failed-1"), "timeout", 3);
  it.calls.finished(call("failed-2"), "timeout", 4);
  it.calls.started(call("open"), 5);
  const rows = worstFirst(filteredCalls(it.calls, { search: "", which: "all" }, 100), 100);
  assert.deepEqual(ids(rows), ["failed-2", "failed-1", "slow", "open", "quick"]);
});

test("calls are narrowed by how they ended and by words in what they name", () => {
  const { it } = world();
  it.calls.finished(call("1", { capability: "mail.send" }), "timeout", 1);
  it.calls.finished(call("2", { age_ms: 5000 }), "completed", 2);
  it.calls.started(call("3"), 3);
  const narrowed = (which: "all" | "open" | "failed" | "slow", search = ""): string[] =>
    ids(filteredCalls(it.calls, { search, which }, 4));
  assert.deepEqual(narrowed("failed"), ["1"]);
  assert.deepEqual(narrowed("slow"), ["2"]);
  assert.deepEqual(narrowed("open"), ["3"]);
  assert.deepEqual(narrowed("all", "mail timeout"), ["1"]);
  assert.deepEqual(narrowed("all", "mail completed"), []);
});

test("a task that was open and that a new snapshot does not name is forgotten, an ended one stays", () => {
  const { it } = world();
  it.take({ event: "task.queued", task: task("open", "QUEUED") }, 0);
  it.take({ event: "task.succeeded", task: task("done", "SUCCEEDED") }, 0);
  it.take({ event: "snapshot", tasks: [task("new", "QUEUED")] }, 1);
  assert.deepEqual(ids(it.tasks.rows()).sort(), ["done", "new"]);
});

test("tasks are bounded: an ended one makes room, an open one does not", () => {
  const { it } = world();
  it.tasks.put(task("done", "FAILED"), 0);
  for (let n = 0; n < TASKS_MAX; n += 1) it.tasks.put(task(String(n), "QUEUED"), 0);
  assert.equal(it.tasks.size, TASKS_MAX);
  assert.equal(it.tasks.get("done"), undefined);
  it.tasks.put(task("more", "QUEUED"), 0);
  assert.equal(it.tasks.get("more"), undefined);
  assert.equal(it.tasks.leftOut, 1);
});

test("progress belongs to its task, and to none that is not known", () => {
  const { it } = world();
  it.take({ event: "task.processing", task: task("t", "PROCESSING") }, 0);
  it.take({ event: "task.progress", task_id: "t", progress: { done: 3 } }, 1);
  it.take({ event: "task.progress", task_id: "unknown", progress: 1 }, 1);
  assert.deepEqual(it.tasks.get("t")?.progress, { done: 3 });
  assert.equal(it.tasks.size, 1);
});

test("an event of another kind, which a newer hub may send, changes nothing", () => {
  const { it, touched } = world();
  assert.equal(it.take({ event: "weather.changed" }, 0), false);
  assert.deepEqual(touched, []);
});
