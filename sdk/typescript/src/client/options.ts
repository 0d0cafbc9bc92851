/** How a call is asked for. */

import { encode } from "../codec/index.js";
import { CallError } from "../errors.js";
import { decodeToHub, encodeToHub, Kind, type Call, type Policy, type Priority } from "../frames/index.js";
import { pairs, type CallSpec, type Payload } from "../session/types.js";
import { schemaOf, type Schema } from "./schema.js";

/** Options of every call. Times are in milliseconds. What is not set is not sent. */
export interface CallOptions {
  /** Processing time, from ACCEPT; each piece starts it anew. Default: the capability's own, else 30,000. */
  timeoutMs?: number;
  /** Time for phase one. Default 3,000. */
  acceptTimeoutMs?: number;
  /** Time for everything, waiting included. Default 60,000, of a task 24 h. */
  budgetMs?: number;
  /** A provider that expects to miss it says so. */
  preferredTimeoutMs?: number;
  /** One intent: the same id is the same call, over retries, reconnects and restarts. Default: made by the SDK. */
  requestId?: string;
  /** How long its outcome is remembered. Default 10 min, for ids of your own 24 h. */
  keepMs?: number;
  /** Exactly these agents. */
  agents?: string[];
  /** Agents with these labels are preferred. */
  labels?: Record<string, string>;
  /** Only agents with these labels. */
  require?: Record<string, string>;
  /** Semver requirement on the capability. */
  version?: string;
  /** The choice among candidates. Default `least_loaded`. */
  policy?: Policy;
  /** Order in the hub's queue. Default `normal`. */
  priority?: Priority;
  /** Whether to wait while all candidates are busy, or to fail with `overloaded`. Default true. */
  queue?: boolean;
  /** How long to wait for somebody with the capability. Default: not at all. */
  waitForAgentMs?: number;
  /** Further tries on the same agent after a retryable failure. Default 2. */
  retries?: number;
  /** Then one on another agent. Default false. */
  allowFallback?: boolean;
  /** Then the last good result for the same body, if it is no older. Default: none. */
  allowCachedMs?: number;
  /** Schema of what is to be read: agents that do not promise it are passed over. */
  expectedOutput?: Schema;
  /** Calls with one key go to one agent while it has room. */
  affinityKey?: string;
  /** W3C Trace Context. */
  traceparent?: string;
  /** W3C Trace Context. */
  tracestate?: string;
  /** Keys that begin with `x-`, for the handler. */
  private?: Record<string, unknown>;
  /** Ends the call when it is aborted: it fails with `cancelled`, and its handler is told. */
  signal?: AbortSignal;
}

/** Options of a stream. */
export interface StreamOptions extends CallOptions {
  /** Pieces that a provider may be ahead of what was taken. Default 16. */
  window?: number;
}

/** Options of a call to several agents. */
export interface CallAllOptions extends CallOptions {
  /** How many of the matching agents. Default `"all"`; of `agents`, where they are named. */
  select?: "all" | number;
  /** Pieces that each provider may be ahead; absent: no pieces, only results. */
  window?: number;
}

/** Options of a task. */
export interface TaskOptions extends CallOptions {
  /** HTTPS address where the result is posted as well. */
  callbackUrl?: string;
  /** `agent:AGENT_ID`, whose inbox the result goes to as well. */
  replyTo?: string;
  /** Whether the handler is asked to say how far it is. Default true. */
  progress?: boolean;
}

/** Names that were written once, and can be written again. */
const known = new Set<string>();

/** What a call says. @throws CallError `invalid_request` for options that cannot be. */
export function specOf(
  capability: string,
  payload: Payload,
  options: (CallOptions & TaskOptions & CallAllOptions) | undefined,
  more: Partial<CallSpec["header"]> | undefined,
  window: number | undefined,
): CallSpec {
  if (options === undefined && more === undefined) {
    const isPlain = window === undefined && payload.contentType === undefined;
    const spec = { header: { capability }, budget: undefined, window, payload, isPlain };
    if (!known.has(capability)) check(spec);
    if (known.size < 1024) known.add(capability);
    return spec;
  }
  const header = { capability, ...headerOf(options ?? {}), ...more };
  const spec = { header, budget: options?.budgetMs, window, payload };
  check(spec);
  return spec;
}

/** Options as keys of the header: `timeoutMs` is `timeout_ms`. What is no key of CALL is not written. */
function headerOf(o: CallOptions & TaskOptions & CallAllOptions): Omit<CallSpec["header"], "capability"> {
  const header: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(o)) header[key.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)] = value;
  const { labels, require, expectedOutput, waitForAgentMs, private: keys } = o;
  return {
    ...header,
    labels: pairs(labels),
    require: pairs(require),
    wait_ms: waitForAgentMs,
    expected_output: expectedOutput === undefined ? undefined : encode(schemaOf(expectedOutput)),
    private: keys === undefined ? undefined : Object.entries(keys).map(([key, value]) => [key, encode(value)]),
  };
}

/** Options that the hub would refuse, or that cannot be written, fail before anything is sent: it is read as the hub will. */
function check({ header, budget, window }: CallSpec): void {
  try {
    const call = { ...header, id: 0, budget_ms: budget, credit: window };
    const { private: read } = decodeToHub(encodeToHub(Kind.Call, call)).header as Call;
    if ((read?.length ?? 0) !== (header.private?.length ?? 0)) throw new TypeError("private keys begin with x-");
  } catch (error) {
    throw new CallError("invalid_request", (error as Error).message, { accepted: "no" });
  }
}
