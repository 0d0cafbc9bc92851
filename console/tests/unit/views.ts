/** Views as the hub tells them, with what a test does not care about filled in. */

import type { AgentView, CallView, Step, TaskInfo, Trace } from "../../src/state/views.ts";

export function agent(id: string, more: Partial<AgentView> = {}): AgentView {
  const usual = {
    agent_id: id,
    identity: `spiffe://test/agent/${id}`,
    instance: "i",
    status: "ready",
    labels: {},
    capabilities: [],
    in_flight: 0,
    open_calls: 0,
    max_concurrency: 50,
    connected_ms: 0,
    load: {},
    latency_us: 0,
  };
  return { ...usual, ...more };
}

export function call(id: string, more: Partial<CallView> = {}): CallView {
  const usual = { call_id: id, request_id: `r-${id}`, caller: "caller", capability: "work", mode: "call", state: "given" };
  return { ...usual, targets: ["provider"], age_ms: 0, budget_left_ms: 60_000, stream: false, ...more };
}

export function task(id: string, state: string, more: Partial<TaskInfo> = {}): TaskInfo {
  const usual = { task_id: id, state, capability: "work", request_id: `r-${id}`, caller: "caller", attempt: 1, age_ms: 0 };
  return { ...usual, unchanged_ms: 0, ...more } as TaskInfo;
}

export function trace(id: string, steps: Step[]): Trace {
  return { call_id: id, request_id: "r", caller: "c", capability: "work", ended: true, steps };
}
