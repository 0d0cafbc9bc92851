/** The caller's side: calls that this agent asked for, from the first CALL to their one end. */

import { encode } from "../codec/index.js";
import { attemptsOf, CallError, failureOf, type ErrorCode } from "../errors.js";
import { encodeToHub, Kind, type Accept, type Chunk, type Result, type Uint } from "../frames/index.js";
import type { Random } from "./backoff.js";
import { Open } from "./open.js";
import { CUTS_MAX, Pace } from "./pace.js";
import { Queue } from "./queue.js";
import { Results } from "./results.js";
import {
  number,
  type Acceptance,
  type CallEvent,
  type CallKey,
  type CallSpec,
  type Context,
  type End,
  type Now,
  type Payload,
  type Reply,
} from "./types.js";

/** Most calls that wait for a connection, or for a place under the hub's `max_in_flight`. */
const WAITING_MAX = 1024;
/** The hub owns the budget. When it stays silent so long past it, the call ends here. */
const GRACE = 5000;
/** After a reconnect providers may still be on their way back, to a hub that was just started above all. For so long a
 * call that was open before is asked again when nobody is there. */
const RETURN = 10_000;

/** All open calls of this agent. */
export class Asked {
  /** In the order they were made, which is also the order of sending them again. */
  readonly #calls = new Map<CallKey, Open>();
  readonly #byId = new Map<Uint, Open>();
  /** Tasks that the hub has stored. */
  readonly results = new Results();
  readonly #waiting = new Queue<Open>();
  readonly #pace = new Pace();
  /** Not after the first deadline. It may be that of a call that has ended: the look that costs is one in a minute. */
  #nextDeadline: Now = Infinity;
  /** Calls that are asked again at their time. */
  readonly #again = new Set<Open>();
  /** The present connection's calls that were open before are asked again until then. */
  #returnUntil: Now = 0;
  #nextId = 0;
  /** Makes ids of this life unlike those of every other. */
  readonly #prefix: string;
  #made = 0;

  constructor(random: Random) {
    const word = (): string =>
      Math.floor(random() * 2 ** 32)
        .toString(16)
        .padStart(8, "0");
    this.#prefix = word() + word();
  }

  open(cx: Context, key: CallKey, spec: CallSpec): void {
    const requestId = spec.header.request_id ?? `${this.#prefix}-${(this.#made += 1).toString(16)}`;
    const open = new Open(cx.now, key, spec, requestId);
    if (this.#waiting.length >= WAITING_MAX) {
      const error = open.error("overloaded", `${WAITING_MAX} calls wait for the connection already`);
      return ended(cx, key, { error });
    }
    this.#nextDeadline = Math.min(this.#nextDeadline, open.deadline);
    this.#calls.set(key, open);
    this.#waiting.push(open);
    this.sendWaiting(cx);
  }

  /** A session is open: every call that is not on this connection goes out, the oldest first. */
  resume(cx: Context): void {
    this.#returnUntil = cx.now + RETURN;
    this.#again.clear();
    this.#waiting.clear();
    for (const open of this.#calls.values()) {
      if (open.id !== undefined) continue;
      open.patient = true;
      open.againAt = undefined;
      this.#waiting.push(open);
    }
    this.sendWaiting(cx);
  }

  /** The connection is gone. What was on it waits for the next one. */
  lost(now: Now): void {
    this.#byId.clear();
    this.#again.clear();
    this.#pace.go();
    for (const open of this.#calls.values()) {
      if (open.againAt === undefined && open.id === undefined) continue;
      open.againAt = undefined;
      open.id = undefined;
      open.resent = true;
      if (open.isWatch) open.restartFlow();
      this.#waitAnew(now, open);
    }
  }

  /** The hub ends the connection, since more came for this agent than it took. */
  cut(cx: Context): void {
    this.#pace.cut();
    for (const open of this.#byId.values()) {
      // A session that lived is no part of a row of short ones.
      open.cuts = cx.now < this.#returnUntil ? open.cuts + 1 : 1;
      if (open.cuts < CUTS_MAX) continue;
      this.#fail(cx, open, "overloaded", `more came at once than the hub holds, ${CUTS_MAX} times in a row`);
    }
  }

  /** Not on the wire any more: without a budget of its own a call has so long from now. */
  #waitAnew(now: Now, open: Open): void {
    if (open.spec.budget !== undefined) return;
    open.deadline = now + open.patience;
    this.#nextDeadline = Math.min(this.#nextDeadline, open.deadline);
  }

  /** Sends what waits, as far as hub and socket take it. */
  sendWaiting(cx: Context): void {
    if (!cx.link.isReady) return;
    const isFree = (): boolean => this.#pace.at === undefined && this.#byId.size < cx.link.terms.maxInFlight;
    while (this.#waiting.length > 0 && isFree() && cx.outbound.hasRoom) this.#send(cx, this.#waiting.shift()!);
    if (this.#waiting.length === 0) this.#pace.caughtUp();
  }

  #send(cx: Context, open: Open): void {
    const budget = open.spec.budget === undefined ? undefined : Math.floor(Math.max(open.deadline - cx.now, 0));
    if (budget === 0) return this.#fail(cx, open, "budget_exhausted", "spent before it could be sent");
    const id = (this.#nextId += 1);
    const message = open.encode(id, budget);
    if (message.length > cx.link.terms.maxMessage) {
      const text = `the message has ${message.length} bytes, the hub takes ${cx.link.terms.maxMessage}`;
      return this.#fail(cx, open, "payload_too_large", text);
    }
    open.id = id;
    open.sent = true;
    this.#byId.set(id, open);
    this.#pace.sent(cx.now, open.cuts);
    cx.outbound.body(message, id);
    // Behind its CALL, which the hub has to know first.
    if (open.withdrawn) cx.outbound.body(cancel(id));
  }

  #fail(cx: Context, open: Open, code: ErrorCode, message: string): void {
    this.#end(cx, open, { error: open.error(code, message) });
  }

  #end(cx: Context, open: Open, end: End): void {
    this.#remove(open);
    ended(cx, open.key, end);
  }

  /** The agent ends: so does every call. */
  failAll(cx: Context, message: string): void {
    for (const open of this.#calls.values()) this.#fail(cx, open, "closed", message);
    // The hub has the task, and goes on with it.
    for (const key of this.results.drain()) ended(cx, key, { error: new CallError("closed", message) });
  }

  #remove(open: Open): void {
    this.#calls.delete(open.key);
    if (open.id !== undefined) {
      this.#byId.delete(open.id);
      this.#pace.go();
    } else if (!this.#again.delete(open)) this.#waiting.remove((waiting) => waiting === open);
  }

  /** Nobody waits any more. The call's end, which the hub will still send, is dropped when it comes. */
  cancel(cx: Context, key: CallKey): void {
    const open = this.#calls.get(key);
    if (open === undefined) return;
    if (open.id !== undefined) {
      if (cx.outbound.withdraw(open.id)) open.sent = open.resent;
      else cx.outbound.control(encodeToHub(Kind.Cancel, { id: open.id }));
    }
    this.#fail(cx, open, "cancelled", "cancelled by the caller");
    this.sendWaiting(cx);
  }

  /** Nobody wants the result any more, but how it ends: what the provider answers to the cancelling. */
  withdraw(cx: Context, key: CallKey): void {
    const open = this.#calls.get(key);
    if (open === undefined || open.withdrawn) return;
    open.withdrawn = true;
    if (open.resent) {
      // A provider may have it since before: it is asked for again, to learn its end.
      if (open.id !== undefined) cx.outbound.body(cancel(open.id));
    } else if (open.id !== undefined && !cx.outbound.withdraw(open.id)) {
      cx.outbound.control(cancel(open.id));
    } else {
      // It never left, or nobody was there to have it.
      open.sent = false;
      this.#fail(cx, open, "cancelled", "cancelled before anybody had it");
      this.sendWaiting(cx);
    }
  }

  /** A task goes on, its handle is gone. */
  forget(cx: Context, key: CallKey): void {
    if (!this.results.forget(key)) this.cancel(cx, key);
  }

  consumed(cx: Context, key: CallKey, n: number, target: string | undefined): void {
    const open = this.#calls.get(key);
    if (open === undefined) return;
    if (target === undefined) open.flow.grant(n);
    if (open.id !== undefined) cx.outbound.control(encodeToHub(Kind.Credit, { id: open.id, n, target }));
  }

  onAccept(cx: Context, header: Accept): void {
    const open = this.#byId.get(header.id);
    if (open === undefined) return;
    tell(cx, open.key, { is: "accepted", acceptance: acceptance(header, open.requestId) });
    if (header.task_id !== undefined && open.isTask) {
      // Stored: from here on it is the hub's affair. Its result comes by itself, on whatever connection; a second CALL
      // could begin a second task once the first one is forgotten.
      this.#remove(open);
      this.results.wait(open.key, header.task_id);
      return this.sendWaiting(cx);
    }
    open.accepted = true;
    open.callId = header.call_id ?? open.callId;
    open.target = header.target ?? open.target;
  }

  onChunk(cx: Context, header: Chunk, body: Uint8Array | undefined): void {
    const open = this.#byId.get(header.id);
    if (open === undefined) return;
    open.accepted = true;
    const target = open.isFanOut ? header.target : undefined;
    const seq = Number(header.seq);
    const arrival = open.flow.arrives(target, seq);
    if (arrival === "stale") {
      // Sent again after a reconnect. Its credit goes back, or the rest would never come.
      return cx.outbound.control(encodeToHub(Kind.Credit, { id: header.id, n: 1, target }));
    }
    if (arrival !== "due") {
      const text = `chunk ${seq} came where ${arrival.gapAt} was due`;
      if (target === undefined) return this.#breakOff(cx, open, "interrupted", text);
      return breakOffTarget(cx, open, target, text);
    }
    const payload = payloadOf(body, header.content_type);
    tell(cx, open.key, { is: "chunk", seq, target: header.target, payload });
  }

  /** Ends a call here, and at the hub. */
  #breakOff(cx: Context, open: Open, code: ErrorCode, message: string): void {
    const { id } = open;
    if (id !== undefined && !cx.outbound.withdraw(id)) {
      cx.outbound.control(encodeToHub(Kind.Cancel, { id, reason: message }));
    }
    this.#fail(cx, open, code, message);
    this.sendWaiting(cx);
  }

  onResult(cx: Context, header: Result, body: Uint8Array | undefined): void {
    const open = header.id === undefined ? undefined : this.#byId.get(header.id);
    if (header.task_id !== undefined) return this.#onTaskResult(cx, open, header.task_id, header, body);
    if (open === undefined) return;
    const end: End =
      header.status === "completed" || header.summary !== undefined
        ? { reply: replyOf(header, body, open.requestId), summary: header.summary }
        : { error: open.failure(header) };
    if (header.more === true) {
      if (header.target !== undefined && !open.flow.end(header.target)) return;
      return tell(cx, open.key, { is: "part", target: header.target, end });
    }
    if (!("error" in end && this.#holdsOn(cx, open, end.error))) this.#end(cx, open, end);
    this.sendWaiting(cx);
  }

  /** The result of a task: by the id of its CALL when that was a repetition of an ended one, else by its own name. */
  #onTaskResult(
    cx: Context,
    open: Open | undefined,
    taskId: string,
    header: Result,
    body: Uint8Array | undefined,
  ): void {
    const requestId = header.request_id ?? "";
    const end: End =
      header.status === "completed"
        ? { reply: replyOf(header, body, requestId), summary: undefined }
        : { error: failureOf(header, requestId, false, true) };
    if (open !== undefined) this.#remove(open);
    this.results.arrive(cx, open?.key, { taskId, end });
    this.sendWaiting(cx);
  }

  /** Whether a failed call stays open, since it failed only because of a reconnect. Such failures say that no provider
   * was given it, so nothing runs twice by asking again. */
  #holdsOn(cx: Context, open: Open, error: CallError): boolean {
    if (open.id === undefined || open.withdrawn || error.attempts.length > 0) return false;
    if (!cx.link.isReady && error.code === "shutting_down" && !open.accepted) {
      // It crossed the hub's GOODBYE: the next connection carries it.
      this.#byId.delete(open.id);
      open.id = undefined;
      this.#waitAnew(cx.now, open);
      this.#waiting.push(open);
      return true;
    }
    const isNobody = error.code === "no_instance" || error.code === "no_capability";
    const at = cx.now + open.waitAgain;
    const isInBudget = open.spec.budget === undefined || at < open.deadline;
    if (!(cx.link.isReady && isNobody && open.patient && at < this.#returnUntil && isInBudget)) return false;
    open.askedAgain += 1;
    this.#byId.delete(open.id);
    open.id = undefined;
    open.againAt = at;
    this.#again.add(open);
    return true;
  }

  /** Asks the hub for any answer at all: it proves that the hub lives, also when it is a refusal. Nobody waits for it, so
   * it is none of the calls, and no limit of theirs can hold it up. */
  probe(cx: Context, agentId: string): void {
    const id = (this.#nextId += 1);
    const body = encode({ agent_id: agentId });
    cx.outbound.control(encodeToHub(Kind.Call, { id, capability: "hub.agents.get", keep_ms: 0 }, body));
  }

  /** The hub could not use our CALL, or sent an answer that cannot be read: that call ends, no other. */
  onFault(cx: Context, id: Uint, code: ErrorCode, message: string): void {
    const open = this.#byId.get(id);
    if (open !== undefined) this.#breakOff(cx, open, code, message);
  }

  onTimeout(cx: Context): void {
    this.#pace.passes(cx.now);
    for (const open of this.#again) {
      if (open.againAt! > cx.now) continue;
      this.#again.delete(open);
      open.againAt = undefined;
      this.#waiting.push(open);
    }
    this.sendWaiting(cx);
    if (cx.now >= this.#nextDeadline) this.#endOverdue(cx);
  }

  #endOverdue(cx: Context): void {
    this.#nextDeadline = Infinity;
    for (const open of this.#calls.values()) {
      const isOnWire = open.id !== undefined;
      // On the wire the hub's own clock counts: its default, or the budget that it was told.
      if (isOnWire && open.spec.budget === undefined) continue;
      const at = isOnWire ? open.deadline + GRACE : open.deadline;
      if (at > cx.now) this.#nextDeadline = Math.min(this.#nextDeadline, at);
      else this.#breakOff(cx, open, "budget_exhausted", isOnWire ? "the hub did not answer" : "not connected in time");
    }
  }

  get nextTimeout(): Now {
    let at = Math.min(this.#nextDeadline, this.#pace.at ?? Infinity);
    for (const open of this.#again) at = Math.min(at, open.againAt!);
    return at;
  }

  /** Calls that are on the present connection. */
  get onWire(): number {
    return this.#byId.size;
  }

  /** Whether nothing is left of any call. For tests. */
  get isEmpty(): boolean {
    return (
      this.#calls.size === 0 &&
      this.#byId.size === 0 &&
      this.#waiting.length === 0 &&
      this.#again.size === 0 &&
      this.results.isEmpty
    );
  }
}

function tell(cx: Context, key: CallKey, event: CallEvent): void {
  cx.effects.push({ do: "tell", key, event });
}

function ended(cx: Context, key: CallKey, end: End): void {
  tell(cx, key, { is: "ended", end });
}

/** Ends one target's part of a fan-out here; the others go on. */
function breakOffTarget(cx: Context, open: Open, target: string, message: string): void {
  open.flow.end(target);
  const { key, requestId, callId } = open;
  const error = new CallError("interrupted", message, { accepted: "yes", requestId, callId, target });
  tell(cx, key, { is: "part", target, end: { error } });
}

/** Nobody wants this call's result, but how it ends. */
function cancel(id: Uint): Uint8Array {
  return encodeToHub(Kind.Cancel, { id, wait: true });
}

const NONE = new Uint8Array();

function payloadOf(body: Uint8Array | undefined, contentType: string | undefined): Payload {
  return { bytes: body ?? NONE, contentType };
}

function acceptance(header: Accept, requestId: string): Acceptance {
  return {
    requestId,
    callId: header.call_id,
    target: header.target,
    attempt: number(header.attempt),
    queueDepth: number(header.queue_depth),
    wouldTimeout: header.would_timeout === true,
    waitMs: number(header.wait_ms),
    taskId: header.task_id,
  };
}

/** What the RESULT of a completed call says. */
export function replyOf(header: Result, body: Uint8Array | undefined, requestId: string): Reply<Payload> {
  return {
    body: payloadOf(body, header.content_type),
    target: header.target,
    callId: header.call_id,
    requestId,
    attempts: attemptsOf(header),
    route: header.route,
    executionMs: number(header.execution_ms),
    cached: header.cached === true,
    duplicate: header.duplicate === true,
    taskId: header.task_id,
  };
}
