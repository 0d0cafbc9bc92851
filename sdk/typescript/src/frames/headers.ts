/** Every header of the protocol: its type, and its table in the canonical order. */

import {
  ALIASES_MAX,
  CAPABILITIES_MAX,
  ID_BYTES_MAX,
  LIST_MAX,
  SCHEMA_BYTES_MAX,
  TEXT_BYTES_MAX,
  WORD_BYTES_MAX,
} from "../limits.js";
import {
  bool,
  labels,
  levels,
  list,
  number,
  percent,
  raw,
  select,
  share,
  str,
  uint,
  word,
  type FieldType,
  type Pairs,
  type Private,
  type Uint,
} from "./fields.js";
import { always, may, must, Table } from "./table.js";

const id = str(1, ID_BYTES_MAX);
const text = str(0, TEXT_BYTES_MAX);
const shortText = str(0, WORD_BYTES_MAX);
const wordText = str(1, WORD_BYTES_MAX);
const value = raw(SCHEMA_BYTES_MAX);
/** A list whose absence says something else than an empty one. */
const optional = (type: FieldType): FieldType => ({ read: type.read, write: type.write });

/** What a caller waits for. */
export type Mode = "call" | "task" | "notify";
/** Urgency: order in the hub's queue, and a factor on the processing time (0.5, 1, 2). */
export type Priority = "low" | "normal" | "high";
/** What an agent says of its readiness. */
export type Status = "ready" | "degraded" | "draining";
/** The choice among candidates. */
export type Policy = "least_loaded" | "round_robin" | "random";

export interface CapabilityHeader {
  name: string;
  version?: string | undefined;
  description?: string | undefined;
  input_schema?: Uint8Array | undefined;
  output_schema?: Uint8Array | undefined;
  timeout_ms?: Uint | undefined;
  qps_limit?: number | undefined;
  idempotent?: boolean | undefined;
  labels?: Pairs | undefined;
  aliases?: string[] | undefined;
}

export const capability = new Table<CapabilityHeader>([
  must("name", str()),
  may("version", wordText),
  may("description", text),
  may("input_schema", value),
  may("output_schema", value),
  may("timeout_ms", uint),
  may("qps_limit", number),
  may("idempotent", bool),
  may("labels", labels),
  may("aliases", list(str(), 0, ALIASES_MAX)),
]);

export interface LoadHeader {
  in_flight?: Uint | undefined;
  queued?: Uint | undefined;
  cpu?: number | undefined;
  memory?: number | undefined;
  health?: Uint | undefined;
  levels?: readonly (readonly [string, number])[] | undefined;
}

const load = new Table<LoadHeader>([
  may("in_flight", uint),
  may("queued", uint),
  may("cpu", share),
  may("memory", share),
  may("health", percent),
  may("levels", levels),
]);

const status = word("ready", "degraded", "draining");
const features = list(wordText);

export interface Hello {
  v: Uint;
  agent_id: string;
  instance: string;
  service?: string | undefined;
  version?: string | undefined;
  sdk?: string | undefined;
  features?: string[];
  capabilities?: CapabilityHeader[];
  labels?: Pairs;
  max_concurrency?: Uint;
  calls?: string[] | undefined;
  status?: Status | undefined;
  load?: LoadHeader;
}

export const hello = new Table<Hello>([
  must("v", uint),
  must("agent_id", id),
  must("instance", id),
  may("service", shortText),
  may("version", shortText),
  may("sdk", shortText),
  always("features", features),
  always("capabilities", list(capability, 0, CAPABILITIES_MAX)),
  may("labels", labels),
  may("max_concurrency", uint),
  may("calls", optional(list(str(), 0, LIST_MAX))),
  may("status", status),
  may("load", load),
]);

export interface Welcome {
  session: string;
  hub: string;
  features: string[];
  keepalive_ms: Uint;
  suspect_ms: Uint;
  gone_ms: Uint;
  max_message: Uint;
  max_in_flight: Uint;
  granted: { provide: string[]; call: string[] };
  warnings: string[];
  replaced?: boolean;
}

export const welcome = new Table<Welcome>([
  must("session", str()),
  must("hub", str()),
  always("features", features),
  must("keepalive_ms", uint),
  must("suspect_ms", uint),
  must("gone_ms", uint),
  must("max_message", uint),
  must("max_in_flight", uint),
  must("granted", new Table([always("provide", list(str())), always("call", list(str()))])),
  always("warnings", list(str())),
  may("replaced", bool),
]);

export interface Update {
  status?: Status | undefined;
  load?: LoadHeader | undefined;
  add?: CapabilityHeader[] | undefined;
  remove?: string[] | undefined;
}

export const update = new Table<Update>([
  may("status", status),
  may("load", load),
  may("add", list(capability, 0, CAPABILITIES_MAX)),
  may("remove", list(str(), 0, CAPABILITIES_MAX)),
]);

export interface Goodbye {
  code: string;
  reason?: string | undefined;
  reconnect_after_ms?: Uint | undefined;
}

export const goodbye = new Table<Goodbye>([
  must("code", wordText),
  may("reason", text),
  may("reconnect_after_ms", uint),
]);

export interface ErrorReply {
  ref_kind: Uint;
  id?: Uint | undefined;
  code: string;
  message: string;
  details?: Uint8Array | undefined;
}

export const errorReply = new Table<ErrorReply>([
  must("ref_kind", uint),
  may("id", uint),
  must("code", wordText),
  must("message", text),
  may("details", value),
]);

/** CALL, caller to hub. Absent keys have the defaults of docs/protocol.md. */
export interface Call {
  id: Uint;
  request_id?: string | undefined;
  keep_ms?: Uint | undefined;
  capability: string;
  version?: string | undefined;
  agents?: string[] | undefined;
  select?: "one" | "all" | Uint | undefined;
  policy?: Policy | undefined;
  labels?: Pairs | undefined;
  require?: Pairs | undefined;
  mode?: Mode | undefined;
  stream?: boolean | undefined;
  credit?: Uint | undefined;
  accept_timeout_ms?: Uint | undefined;
  timeout_ms?: Uint | undefined;
  budget_ms?: Uint | undefined;
  preferred_timeout_ms?: Uint | undefined;
  priority?: Priority | undefined;
  retries?: Uint | undefined;
  allow_fallback?: boolean | undefined;
  allow_cached_ms?: Uint | undefined;
  queue?: boolean | undefined;
  wait_ms?: Uint | undefined;
  affinity_key?: string | undefined;
  expected_output?: Uint8Array | undefined;
  traceparent?: string | undefined;
  tracestate?: string | undefined;
  callback_url?: string | undefined;
  reply_to?: string | undefined;
  content_type?: string | undefined;
  private?: Private | undefined;
}

const mode = word("call", "task", "notify");
const priority = word("low", "normal", "high");

export const call = new Table<Call>(
  [
    must("id", uint),
    may("request_id", id),
    may("keep_ms", uint),
    must("capability", id),
    may("version", wordText),
    may("agents", optional(list(id, 1))),
    may("select", select),
    may("policy", word("least_loaded", "round_robin", "random")),
    may("labels", labels),
    may("require", labels),
    may("mode", mode),
    may("stream", bool),
    may("credit", uint),
    may("accept_timeout_ms", uint),
    may("timeout_ms", uint),
    may("budget_ms", uint),
    may("preferred_timeout_ms", uint),
    may("priority", priority),
    may("retries", uint),
    may("allow_fallback", bool),
    may("allow_cached_ms", uint),
    may("queue", { read: bool.read, write: bool.write }),
    may("wait_ms", uint),
    may("affinity_key", id),
    may("expected_output", value),
    may("traceparent", text),
    may("tracestate", text),
    may("callback_url", text),
    may("reply_to", text),
    may("content_type", shortText),
  ],
  true,
);

/** CALL, hub to provider. */
export interface Dispatch {
  id: Uint;
  request_id: string;
  call_id: string;
  capability: string;
  caller: string;
  attempt: Uint;
  deadline_ms: Uint;
  preferred_timeout_ms?: Uint | undefined;
  stream: boolean;
  credit?: Uint | undefined;
  mode: Mode;
  priority: Priority;
  labels?: Pairs | undefined;
  traceparent?: string | undefined;
  tracestate?: string | undefined;
  content_type?: string | undefined;
  task_id?: string | undefined;
  private?: Private | undefined;
}

export const dispatch = new Table<Dispatch>(
  [
    must("id", uint),
    must("request_id", id),
    must("call_id", id),
    must("capability", id),
    must("caller", id),
    must("attempt", uint),
    must("deadline_ms", uint),
    may("preferred_timeout_ms", uint),
    always("stream", bool),
    may("credit", uint),
    must("mode", mode),
    must("priority", priority),
    may("labels", labels),
    may("traceparent", text),
    may("tracestate", text),
    may("content_type", shortText),
    may("task_id", id),
  ],
  true,
);

export interface Accept {
  id: Uint;
  queue_depth?: Uint | undefined;
  would_timeout?: boolean | undefined;
  wait_ms?: Uint | undefined;
  request_id?: string | undefined;
  call_id?: string | undefined;
  target?: string | undefined;
  attempt?: Uint | undefined;
  task_id?: string | undefined;
  private?: Private | undefined;
}

export const accept = new Table<Accept>(
  [
    must("id", uint),
    may("queue_depth", uint),
    may("would_timeout", bool),
    may("wait_ms", uint),
    may("request_id", id),
    may("call_id", id),
    may("target", id),
    may("attempt", uint),
    may("task_id", id),
  ],
  true,
);

export interface Chunk {
  id: Uint;
  seq: Uint;
  target?: string | undefined;
  content_type?: string | undefined;
  private?: Private | undefined;
}

export const chunk = new Table<Chunk>(
  [must("id", uint), must("seq", uint), may("target", id), may("content_type", shortText)],
  true,
);

export interface Credit {
  id: Uint;
  n: Uint;
  target?: string | undefined;
}

export const credit = new Table<Credit>([must("id", uint), must("n", uint), may("target", id)]);

/** One try of a call. */
export interface AttemptHeader {
  target: string;
  outcome: string;
  ms: Uint;
  reason: string;
}

export interface ErrorHeader {
  code: string;
  message: string;
  retryable: boolean;
  details?: Uint8Array | undefined;
}

/** How a fan-out ended. */
export interface SummaryHeader {
  targets: Uint;
  completed: Uint;
  failed: Uint;
}

export interface Result {
  id?: Uint | undefined;
  status: "completed" | "failed" | "no_instance";
  request_id?: string | undefined;
  call_id?: string | undefined;
  target?: string | undefined;
  task_id?: string | undefined;
  execution_ms?: Uint | undefined;
  attempts?: AttemptHeader[] | undefined;
  route?: string | undefined;
  cached?: boolean | undefined;
  duplicate?: boolean | undefined;
  error?: ErrorHeader | undefined;
  more?: boolean | undefined;
  summary?: SummaryHeader | undefined;
  content_type?: string | undefined;
  private?: Private | undefined;
}

const attempt = new Table<AttemptHeader>([
  must("target", id),
  must("outcome", wordText),
  must("ms", uint),
  must("reason", text),
]);
const error = new Table<ErrorHeader>([
  must("code", shortText),
  must("message", text),
  always("retryable", bool),
  may("details", value),
]);
const count: FieldType = { ...uint, absent: { value: 0 } };
const summary = new Table<SummaryHeader>([
  always("targets", count),
  always("completed", count),
  always("failed", count),
]);

export const result = new Table<Result>(
  [
    may("id", uint),
    must("status", word("completed", "failed", "no_instance")),
    may("request_id", id),
    may("call_id", id),
    may("target", id),
    may("task_id", id),
    may("execution_ms", uint),
    may("attempts", list(attempt)),
    may("route", text),
    may("cached", bool),
    may("duplicate", bool),
    may("error", error),
    may("more", bool),
    may("summary", summary),
    may("content_type", shortText),
  ],
  true,
);

export interface Cancel {
  id: Uint;
  reason?: string | undefined;
  wait?: boolean | undefined;
}

export const cancel = new Table<Cancel>([must("id", uint), may("reason", text), may("wait", bool)]);

export interface Receipt {
  task_id: string;
}

export const receipt = new Table<Receipt>([must("task_id", id)]);
