/** What the hub shows of itself, as `hub.*` and its events write it. */

import type { AgentInfo, Attempt, CapabilityInfo, OfferInfo, TaskInfo as ClientTask } from "@agent-reach/client";

export type { Attempt, CapabilityInfo, OfferInfo };

/** One task. */
export interface TaskInfo extends ClientTask {
  /** How its end is delivered to a URL. */
  callback?: { url: string; attempts: number; outcome?: string; next_in_ms?: number };
  /** The task whose CALL this one makes again. */
  retry_of?: string;
}

/** One agent. */
export interface AgentView extends AgentInfo {
  /** Slots taken. */
  open_calls: number;
  /** Moving average from CALL to RESULT, in microseconds. */
  latency_us: number;
  /** An operator drains it. */
  drained?: boolean;
}

/** One call that an agent has at present. */
export interface OpenLeg {
  capability: string;
  caller: string | null;
  call_id: string | null;
  state: string;
  age_ms: number;
  attempt: number;
}

/** One agent with what is shown of one alone. */
export interface AgentDetails extends AgentView {
  last_seen_ms: number | null;
  completed: number;
  failed: number;
  calls: OpenLeg[];
  offers: Omit<OfferInfo, "agent_id" | "status">[];
}

/** One call that is open, or has just ended. */
export interface CallView {
  call_id: string;
  request_id: string;
  caller: string;
  capability: string;
  mode: string;
  state: string;
  targets: string[];
  age_ms: number;
  budget_left_ms: number;
  stream: boolean;
}

/** A call that was refused before it was one: what there is of it. */
export type RefusedView = Pick<CallView, "call_id" | "request_id" | "caller" | "capability">;

/** Who could have had a call, and why the others could not. */
export interface Candidates {
  policy: string;
  offering: number;
  able: number;
  excluded: Record<string, number>;
}

/** One step of a call. */
export interface Step {
  /** Microseconds since the CALL. */
  at_us: number;
  step: string;
  target?: string;
  attempt?: number;
  outcome?: string;
  reason?: string;
  candidates?: Candidates;
}

/** Each decision of one call. */
export interface Trace {
  call_id: string;
  request_id: string;
  caller: string;
  capability: string;
  ended: boolean;
  steps: Step[];
}

/** How long calls took in one phase; no times of no calls. */
export interface Quantiles {
  calls: number;
  p50_us?: number;
  p90_us?: number;
  p99_us?: number;
}

/** A breaker that is not closed. */
export interface Breaker {
  agent_id: string;
  capability: string;
  state: string;
}

/** Figures of the hub. */
export interface Stats {
  hub: string;
  draining: boolean;
  policy_version: number;
  connections: number;
  agents: number;
  agents_ready: number;
  agents_suspect: number;
  agents_away: number;
  capabilities: number;
  open_calls: number;
  in_flight: number;
  waiting: number;
  waiting_by_capability: { capability: string; calls: number }[];
  watches: number;
  calls_completed: number;
  calls_failed: number;
  failed_by_code: Record<string, number>;
  latency: { window_ms: number; accept: Quantiles; process: Quantiles; total: Quantiles };
  breakers_open: number;
  breakers_half_open: number;
  breakers: Breaker[];
  late_frames: number;
  outbound_bytes: number;
  open_bytes: number;
  remembered: number;
  remembered_bytes: number;
  /** Memory of the hub's process, where its system tells. */
  resident_bytes?: number;
}

/** A chunk of `hub.events.watch`. */
export interface HubEvent {
  event: string;
  agents?: AgentView[];
  calls?: CallView[];
  tasks?: TaskInfo[];
  /** Of a snapshot: further parts follow. */
  more?: boolean;
  agent?: AgentView;
  agent_id?: string;
  reason?: string;
  call?: CallView | RefusedView;
  /** Of `call.refused`: how many before it were not told. */
  left_out?: number;
  outcome?: string;
  task?: TaskInfo;
  task_id?: string;
  progress?: unknown;
}
