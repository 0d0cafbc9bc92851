/** What goes in and comes out of the session. */

import type { CallError, CloseReason, ConnectError } from "../errors.js";
import type { Call, CapabilityHeader, Dispatch, LoadHeader, Pairs, Status, SummaryHeader, Uint } from "../frames/index.js";

/** A caller's handle on one call, made where the call is made. */
export type CallKey = number;
/** One execution of a handler. */
export type RunKey = number;
/** A moment in milliseconds, of a clock that never goes back. */
export type Now = number;

/** A body with what it is. No bytes are no body. */
export interface Payload {
  bytes: Uint8Array;
  /** Absent: MessagePack. */
  contentType?: string | undefined;
}

/** No body. */
export const EMPTY: Payload = { bytes: new Uint8Array() };

/** Everything a CALL says but its id and what is left of its budget. */
export interface CallSpec {
  header: Omit<Call, "id" | "stream" | "credit" | "content_type" | "budget_ms">;
  /** Time for everything, in milliseconds. */
  budget: number | undefined;
  /** First window of a stream in chunks; `undefined`: no stream. */
  window: number | undefined;
  payload: Payload;
  /** It says nothing but its capability and its body. */
  isPlain?: boolean;
}

/** Phase one: a provider has the call. Says nothing about success. */
export interface Acceptance {
  /** The business intent. */
  requestId: string;
  /** Hub-wide id, for `hub.traces.get`. */
  callId: string | undefined;
  /** Who accepted. */
  target: string | undefined;
  /** Which try, from 1. */
  attempt: number | undefined;
  /** Calls that wait in the provider before this one. */
  queueDepth: number | undefined;
  /** The provider expects to miss `preferredTimeoutMs`. */
  wouldTimeout: boolean;
  /** Then: how long the caller would have to wait, in milliseconds from now. */
  waitMs: number | undefined;
  /** Of a task. */
  taskId: string | undefined;
}

/** How a call ended, and how it got there. */
export interface Reply<T> {
  /** The result. */
  body: T;
  /** Who did it. */
  target: string | undefined;
  /** Hub-wide id, for `hub.traces.get`. */
  callId: string | undefined;
  /** The business intent. */
  requestId: string;
  /** Every try in order, the good one too. */
  attempts: import("../errors.js").Attempt[];
  /** Why it went where it went, in one line. */
  route: string | undefined;
  /** How long the handler ran, in milliseconds. */
  executionMs: number | undefined;
  /** The result is an earlier call's with the same body. */
  cached: boolean;
  /** The `requestId` had ended before: this is its stored end. */
  duplicate: boolean;
  /** Of a task. */
  taskId: string | undefined;
}

/** A result, or a failure. */
export type End = { reply: Reply<Payload>; summary: SummaryHeader | undefined } | { error: CallError };

/** What a caller learns of its call. */
export type CallEvent =
  | { is: "accepted"; acceptance: Acceptance }
  | { is: "chunk"; seq: number; target: string | undefined; payload: Payload }
  /** One target's end in a fan-out. */
  | { is: "part"; target: string | undefined; end: End }
  | { is: "ended"; end: End };

/** How a task ended, wherever it is told. */
export interface TaskEnd {
  taskId: string;
  end: End;
}

/** A CALL for a handler of this agent. */
export interface Invocation {
  run: RunKey;
  header: Dispatch;
  payload: Payload;
  /** Chunks that may be emitted at once. */
  credit: number;
}

/** A RESULT that is no result. */
export interface Failure {
  code: string;
  message: string;
  retryable: boolean;
  details?: Uint8Array | undefined;
}

/** How a handler ended. */
export type Outcome = { payload: Payload } | { failure: Failure };

/** What an agent reports of its load, as its program says it. */
export type OwnLoad = Omit<LoadHeader, "in_flight">;

/** One thing that an agent offers. */
export interface Offer {
  header: CapabilityHeader;
  /** Most handlers of it at once. */
  most: number | undefined;
}

/** Everything that can happen to a session. */
export type Input =
  /** Begin: the first dial. */
  | { is: "start" }
  /** The socket is open and upgraded. */
  | { is: "opened" }
  | { is: "dialFailed"; error: ConnectError }
  /** One WebSocket message. */
  | { is: "message"; message: Uint8Array }
  /** A text message, which this subprotocol does not have. */
  | { is: "text" }
  /** A ping or a pong. */
  | { is: "alive" }
  /** The socket is gone; with the close code, if one came. */
  | { is: "lost"; code: number | undefined; reason: string }
  /** Something was handed to the socket. */
  | { is: "wrote" }
  /** The machine woke up, or the network came back: what waited for a timer may be overdue. */
  | { is: "woke" }
  | { is: "setLoad"; load: OwnLoad }
  | { is: "setStatus"; status: Status }
  | { is: "add"; offer: Offer }
  | { is: "remove"; name: string }
  /** Drain and end, within so many milliseconds. */
  | { is: "close"; within: number }
  /** The time of `nextTimeout` has come. */
  | { is: "timeout" }
  /** A caller asks. */
  | { is: "open"; key: CallKey; spec: CallSpec }
  /** A caller no longer wants it. */
  | { is: "cancel"; key: CallKey }
  /** A caller no longer wants it, and waits for what becomes of it. */
  | { is: "withdraw"; key: CallKey }
  /** A caller lets go of a task, which goes on. */
  | { is: "forget"; key: CallKey }
  /** A handle waits for the result of the task of this id. */
  | { is: "claim"; key: CallKey; taskId: string }
  /** A caller took so many chunks; in a fan-out of this target. */
  | { is: "consumed"; key: CallKey; n: number; target: string | undefined }
  /** A task's result is in the program's hands. */
  | { is: "received"; taskId: string }
  | { is: "emit"; run: RunKey; payload: Payload }
  /** A handler says how long it expects to take. */
  | { is: "wouldTake"; run: RunKey; ms: number }
  | { is: "finished"; run: RunKey; outcome: Outcome }
  /** What the store said of an intent: how it ended, or nothing. */
  | { is: "recalled"; run: RunKey; served: Served | undefined };

/** What the session wants done. */
export type Effect =
  /** Open a socket. */
  | { do: "dial" }
  | { do: "ping" }
  /** Write what is queued, close with this code, and let the socket go. */
  | { do: "close"; code: number }
  /** Let the socket go at once: nobody is at the other end. */
  | { do: "abort" }
  /** Registered: HELLO was answered. */
  | { do: "ready"; maxMessage: number; session: string }
  /** The connection is gone, and another one will be dialled. */
  | { do: "lost"; reason: string }
  | { do: "tell"; key: CallKey; event: CallEvent }
  /** A task's result that no handle here waits for: for the inbox. */
  | { do: "arrived"; end: TaskEnd }
  /** Give this handle the result of its task from the inbox. */
  | { do: "hand"; key: CallKey; taskId: string }
  | { do: "run"; call: Invocation }
  /** Let a handler emit so many chunks more. */
  | { do: "grant"; run: RunKey; n: number }
  /** Tell a handler that nobody wants its result. */
  | { do: "cancelRun"; run: RunKey }
  /** A handler is given up: what it still says is dropped. */
  | { do: "abortRun"; run: RunKey }
  /** Ask the store how an intent ended. */
  | { do: "recall"; run: RunKey; intent: string }
  /** Keep the end of an intent in the store. */
  | { do: "keep"; intent: string; served: Served }
  /** Something that the program should know of. */
  | { do: "warn"; text: string }
  | { do: "stopped"; reason: CloseReason };

/** One served call, as it can be answered again. */
export interface Served {
  outcome: Outcome;
  /** The chunks of its stream; `undefined` when they were too many to keep. */
  chunks: Payload[] | undefined;
  executionMs: number;
}

/** What the parts of a session work on together. */
export interface Context {
  now: Now;
  readonly link: import("./link.js").Link;
  readonly outbound: import("./outbound.js").Outbound;
  effects: Effect[];
}

/** Labels of an API as pairs of the wire. */
export function pairs(labels: Record<string, string> | undefined): Pairs | undefined {
  return labels === undefined ? undefined : Object.entries(labels);
}

/** An integer of the wire that is no larger than numbers are exact. */
export function number(n: Uint | undefined): number | undefined {
  return n === undefined ? undefined : Number(n);
}
