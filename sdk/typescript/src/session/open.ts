/** One call that this agent asked for: what it says, and what came of it so far. */

import { CallError, failureOf, type ErrorCode } from "../errors.js";
import { encodePlainCall, encodeToHub, Kind, type Result, type Uint } from "../frames/index.js";
import { KEEP_MS_MADE } from "../limits.js";
import { Flow } from "./flow.js";
import type { CallKey, CallSpec, Now } from "./types.js";

/** A call without a budget of its own waits so long for a connection. */
const PATIENCE = 60_000;
/** A task may wait longer, as it may in the hub. */
const TASK_PATIENCE = 86_400_000;
/** First and longest wait before a call whose provider may be on its way back is asked again; doubled each time. */
const AGAIN = 50;
const AGAIN_MOST = 1000;

/** One call, until its end. */
export class Open {
  /** On the present connection. */
  id: Uint | undefined;
  /** It left at least once. */
  sent = false;
  /** It may have left on an earlier connection: another provider, or another life of the hub, may have had it. */
  resent = false;
  accepted = false;
  /** When it ends here, if it is not on the wire. */
  deadline: Now;
  /** Nobody wants its result any more; how it ends is still to be told. */
  withdrawn = false;
  /** It was open when the present session began: providers may still be on their way back. */
  patient = false;
  /** How often the hub was asked again because nobody was back yet. */
  askedAgain = 0;
  /** How often in a row its connection was ended as a slow consumer's. */
  cuts = 0;
  /** When it goes out again, if it waits for providers to come back. */
  againAt: Now | undefined;
  flow: Flow;
  callId: string | undefined;
  target: string | undefined;

  constructor(
    now: Now,
    readonly key: CallKey,
    readonly spec: CallSpec,
    readonly requestId: string,
  ) {
    this.flow = new Flow(spec.window ?? 0);
    this.deadline = now + (spec.budget ?? this.patience);
  }

  get isTask(): boolean {
    return this.spec.header.mode === "task";
  }

  /** Whether it watches something at the hub: asked again it begins anew, with the state as it is then. */
  get isWatch(): boolean {
    const name = this.spec.header.capability;
    return name.startsWith("hub.") && name.endsWith(".watch");
  }

  /** Whether several targets answer, each with its own RESULT. */
  get isFanOut(): boolean {
    const { agents, select } = this.spec.header;
    return (agents !== undefined && agents.length > 1) || (select !== undefined && select !== "one");
  }

  get patience(): number {
    return this.isTask ? TASK_PATIENCE : PATIENCE;
  }

  /** How long to wait before the hub is asked again. */
  get waitAgain(): number {
    return Math.min(AGAIN * 2 ** Math.min(this.askedAgain, 5), AGAIN_MOST);
  }

  restartFlow(): void {
    this.flow = new Flow(this.spec.window ?? 0);
  }

  error(code: ErrorCode, message: string): CallError {
    const accepted = this.accepted ? "yes" : this.sent ? "unknown" : "no";
    const { requestId, callId, target } = this;
    return new CallError(code, message, { accepted, requestId, callId, target });
  }

  /** What the hub's RESULT says of a failure. */
  failure(header: Result): CallError {
    return failureOf(header, this.requestId, this.accepted, this.resent);
  }

  encode(id: Uint, budget: number | undefined): Uint8Array {
    const { header, window, payload, isPlain } = this.spec;
    // No bytes are no body: nothing, which a schema can allow, and no MessagePack that breaks off.
    const body = payload.bytes.length > 0 ? payload.bytes : undefined;
    if (isPlain === true) return encodePlainCall(id, this.requestId, header.capability, body);
    const isMade = header.request_id === undefined && header.keep_ms === undefined;
    const message = {
      ...header,
      id,
      request_id: this.requestId,
      keep_ms: isMade ? KEEP_MS_MADE : header.keep_ms,
      budget_ms: budget,
      stream: window !== undefined,
      // All of it in a fan-out, whose targets stand at different places; that can be one window too much for each,
      // never more.
      credit: window === undefined ? undefined : this.isFanOut ? window : this.flow.window,
      content_type: payload.contentType,
    };
    return encodeToHub(Kind.Call, message, body);
  }
}
