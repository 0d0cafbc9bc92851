/** What both entries have alike. */

export { decode, encode, EncodeError, Ext, ReadError, Timestamp } from "./codec/index.js";
export { Agent, type AgentOptions } from "./client/agent.js";
export { CallStream, PendingCall, type Reply, type TypedEnd } from "./client/calls.js";
export { Directory, type AgentFilter, type AgentInfo, type CapabilityInfo, type OfferInfo } from "./client/discover.js";
export { PendingFanOut, type FanOut, type FanOutItem, type Part, type Summary } from "./client/fan-out.js";
export type { HealthReport, LoadReport } from "./client/health.js";
export type { CallAllOptions, CallOptions, StreamOptions, TaskOptions } from "./client/options.js";
export { Raw } from "./client/payload.js";
export { Context, type CapabilityOptions, type Handled, type Handler } from "./client/provide.js";
export type { JsonSchema, Schema, ZodLike } from "./client/schema.js";
export { MemoryStore, type DedupeStore } from "./client/store.js";
export {
  Inbox,
  TaskHandle,
  type TaskEvent,
  type TaskFilter,
  type TaskInfo,
  type TaskResult,
  type TaskState,
} from "./client/tasks.js";
export {
  CallError,
  ConnectError,
  HandlerError,
  type Accepted,
  type Attempt,
  type CloseReason,
  type ConnectErrorKind,
  type ErrorCode,
} from "./errors.js";
export type { Mode, Policy, Priority, Status } from "./frames/index.js";
export type { Acceptance } from "./session/types.js";
