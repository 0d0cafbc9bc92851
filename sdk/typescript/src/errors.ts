/** Why a call, a connection or a handler failed. */

import { decode } from "./codec/index.js";
import type { AttemptHeader, Result } from "./frames/index.js";

/**
 * Codes of the protocol that say more than that the call failed. `r`: trying again can help. What a code tells of a call
 * whose ACCEPT was not seen: `y`, a provider had it (a RESULT that came first stands for ACCEPT); `n`, none had it;
 * neither, it may have.
 */
const CODES = {
  no_instance: "rn",
  no_capability: "n",
  unauthorized: "n",
  invalid_request: "n",
  schema_mismatch: "n",
  payload_too_large: "n",
  overloaded: "rn",
  rate_limited: "rn",
  accept_timeout: "r",
  timeout: "ry",
  circuit_open: "rn",
  handler_error: "y",
  unsupported: "n",
  idempotency_conflict: "n",
  shutting_down: "rn",
  unknown_kind: "n",
} as const;

/** Codes of the protocol after which a provider may have had the call, and trying again as it is does not help. */
type OtherCode = "budget_exhausted" | "agent_lost" | "cancelled" | "degraded" | "orphaned" | "internal";

/**
 * Why a call failed: a code of the protocol, one of the SDK's own (`interrupted`: a stream without its end; `decode`: the
 * result cannot be read; `closed`: this agent has ended), or a word that a later hub knows.
 */
export type ErrorCode = keyof typeof CODES | OtherCode | "interrupted" | "decode" | "closed" | (string & {});

/** Whether a provider had the call when it failed: whether it may have had an effect. */
export type Accepted = "yes" | "no" | "unknown";

/** One try of a call. */
export interface Attempt {
  /** Who was tried. */
  target: string;
  /** `completed` or an error code. */
  outcome: string;
  /** How long it took, in milliseconds. */
  ms: number;
  /** Why this agent, or why it failed. */
  reason: string;
}

function says(code: string, letter: string): boolean {
  return Object.hasOwn(CODES, code) && CODES[code as keyof typeof CODES].includes(letter);
}

/** Whether the table says that another try can help. */
export function isRetryable(code: ErrorCode): boolean {
  return says(code, "r");
}

/** What is known of a failed call besides its code and message. */
export interface CallErrorFields {
  retryable?: boolean;
  accepted?: Accepted;
  details?: unknown;
  requestId?: string;
  callId?: string | undefined;
  target?: string | undefined;
  attempts?: Attempt[];
  cause?: CallError | undefined;
}

/** A call failed. */
export class CallError extends Error {
  override readonly name = "CallError";
  /** What kind of failure. */
  readonly code: ErrorCode;
  /** Whether the same call, with the same `requestId`, can end otherwise. */
  readonly retryable: boolean;
  /** Whether a provider had it. `"no"`: trying again cannot run it twice. */
  readonly accepted: Accepted;
  /** For programs; of `handler_error` `{code, message}` of the handler. */
  readonly details: unknown;
  /** The business intent: the program's own, or made by the SDK. */
  readonly requestId: string;
  /** Hub-wide id for `hub.traces.get`, if the hub had given one. */
  readonly callId: string | undefined;
  /** Who failed, if it had gone anywhere. */
  readonly target: string | undefined;
  /** Every try in order. */
  readonly attempts: readonly Attempt[];
  /** Of `degraded`: the failure that was left when every further try was used up. */
  declare readonly cause: CallError | undefined;

  constructor(code: ErrorCode, message: string, fields: CallErrorFields = {}) {
    super(`${code}: ${message}`, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.code = code;
    this.retryable = fields.retryable ?? isRetryable(code);
    this.accepted = fields.accepted ?? "unknown";
    this.details = fields.details;
    this.requestId = fields.requestId ?? "";
    this.callId = fields.callId;
    this.target = fields.target;
    this.attempts = fields.attempts ?? [];
  }
}

function acceptedByCode(code: string): Accepted {
  return says(code, "y") ? "yes" : says(code, "n") ? "no" : "unknown";
}

/** One that a provider had is enough; that none had it must be certain of all tries. */
function acceptedBy(code: string, attempts: readonly Attempt[]): Accepted {
  const all = [acceptedByCode(code), ...attempts.map((attempt) => acceptedByCode(attempt.outcome))];
  return all.includes("yes") ? "yes" : all.includes("unknown") ? "unknown" : "no";
}

/** The tries of a RESULT. */
export function attemptsOf(header: Result): Attempt[] {
  return (header.attempts ?? []).map((attempt: AttemptHeader) => ({ ...attempt, ms: Number(attempt.ms) }));
}

/** `details` as a value; bytes that cannot be read are handed over as they are. */
function readDetails(details: Uint8Array | undefined): unknown {
  if (details === undefined) return undefined;
  try {
    return decode(details);
  } catch {
    return details;
  }
}

/** The failure that a RESULT says. `accepted`: a provider was seen to have it. */
export function failureOf(header: Result, requestId: string, accepted: boolean, wasElsewhere: boolean): CallError {
  const wire = header.error;
  const fallback = header.status === "no_instance" ? "no_instance" : "internal";
  const code = wire?.code ?? fallback;
  const message = wire?.message ?? (fallback === "internal" ? "the hub gave no reason" : "no agent can take it now");
  const details = readDetails(wire?.details);
  const attempts = attemptsOf(header);
  const cause = code === "degraded" ? causeOf(details) : undefined;
  let had = accepted ? "yes" : acceptedBy(cause?.code ?? code, attempts);
  // Nobody has it now; whoever had it before the reconnect may have run it.
  if (had === "no" && wasElsewhere) had = "unknown";
  const { call_id: callId, target } = header;
  return new CallError(code, message, {
    retryable: wire?.retryable ?? isRetryable(code),
    accepted: had,
    details,
    requestId,
    callId,
    target,
    attempts,
    cause,
  });
}

function causeOf(details: unknown): CallError | undefined {
  const cause = (details as { cause?: Record<string, unknown> } | undefined)?.cause;
  if (typeof cause?.["code"] !== "string") return undefined;
  const message = typeof cause["message"] === "string" ? cause["message"] : "";
  return new CallError(cause["code"], message, { retryable: cause["retryable"] === true, details: cause["details"] });
}

/** Why a connection could not be had. */
export type ConnectErrorKind =
  /** The address, a name or an option cannot be used. */
  | "config"
  /** Certificates or keys cannot be read, or the handshake failed. */
  | "tls"
  /** The hub answered HELLO with GOODBYE. */
  | "refused"
  /** The upgrade was answered with another HTTP status. */
  | "http"
  /** The network. */
  | "io"
  /** No session within the time given. */
  | "timeout"
  /** The agent was closed meanwhile. */
  | "closed";

/** A connection could not be had. */
export class ConnectError extends Error {
  override readonly name = "ConnectError";
  constructor(
    readonly kind: ConnectErrorKind,
    message: string,
    /** Of `http` the status, of `refused` the word of GOODBYE. */
    readonly code?: number | string,
  ) {
    super(message);
  }

  /** Whether dialling again cannot help until somebody changes something. TLS failures are not: the certificate may be
   * renewed on disk. */
  get isFinal(): boolean {
    if (this.kind === "http" && typeof this.code === "number") {
      return this.code >= 400 && this.code < 500 && ![408, 425, 429].includes(this.code);
    }
    return this.kind === "config" || this.kind === "closed";
  }
}

/** Why an agent's life ended. */
export interface CloseReason {
  /** `closed` by this program, `goodbye` of the hub after which one does not come back, `connect` for good. */
  kind: "closed" | "goodbye" | "connect";
  /** Of `goodbye` its word: `replaced`, `unauthorized`, … */
  code?: string;
  /** For people. */
  message: string;
  /** Of `connect`. */
  error?: ConnectError;
}

/** Codes of a provider that reach the caller as they are. */
const PASSES = new Set<string>([
  "unsupported",
  "invalid_request",
  "schema_mismatch",
  "overloaded",
  "rate_limited",
  "cancelled",
]);

/**
 * What a handler throws when it cannot complete a call. With a code of its own the caller sees `handler_error` with
 * `details: {code, message}`; `unsupported`, `invalid_request`, `schema_mismatch`, `overloaded`, `rate_limited` and
 * `cancelled` pass as they are. Any other error that a handler throws counts as one with the code `error`.
 */
export class HandlerError extends Error {
  override readonly name = "HandlerError";
  /** The same call can succeed later, perhaps elsewhere: it will run again. Default: no, but for `overloaded` and
   * `rate_limited`. */
  readonly retryable: boolean;
  /** More for programs; of `handler_error` in place of `{code, message}`. */
  readonly details: unknown;

  constructor(
    readonly code: string,
    message: string,
    options: { retryable?: boolean; details?: unknown } = {},
  ) {
    super(message);
    this.retryable = options.retryable ?? (PASSES.has(code) && isRetryable(code));
    this.details = options.details;
  }

  /** The code as the wire has it. */
  get wireCode(): string {
    return PASSES.has(this.code) ? this.code : "handler_error";
  }
}
