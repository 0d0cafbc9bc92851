/** The provider's side: handlers that run, each intent once, whatever the connection does. */

import { encodeToHub, Kind, type Dispatch, type Uint } from "../frames/index.js";
import { ACCEPT_HOLD_MS } from "../limits.js";
import { Memory } from "./memory.js";
import { Queue } from "./queue.js";
import { Rooms, type Outlook } from "./rooms.js";
import { CANCELLED, Chunks, failure, refusal, Run, type Again } from "./run.js";
import { EMPTY, type Context, type Now, type Offer, type Outcome, type Payload, type RunKey, type Served } from "./types.js";

/** A handler whose hub does not come back gets at least so long after the connection was lost. */
const ORPHAN = 30_000;

const NOT_KEPT = "the stream cannot be told again: its beginning is no longer kept";

/** Whether a repeated CALL is answered with this, and not run again. */
function isFinal(outcome: Outcome): boolean {
  // A retryable failure frees the intent: its retry is meant to run.
  return "payload" in outcome || (!outcome.failure.retryable && outcome.failure.code !== "cancelled");
}

/** All handlers of this agent. */
export class Running {
  readonly #runs = new Map<RunKey, Run>();
  readonly #byId = new Map<Uint, Run>();
  readonly #byIntent = new Map<string, Run>();
  #rooms = new Rooms();
  readonly #memory = new Memory();
  /** ACCEPTs that are held back; all for the same time, so in order. */
  readonly #holds = new Queue<{ at: Now; run: Run }>();
  /** When one that nobody asks for any more is cancelled, and when one that was cancelled is given up. */
  readonly #due = new Map<Run, Now>();
  #nextRun = 0;
  /** Handlers that run, and calls that wait for theirs. */
  #handlers = 0;

  readonly #max: number;
  readonly #grace: number;
  readonly #hasStore: boolean;

  constructor(
    max: number,
    /** Milliseconds that a cancelled handler may take to end by itself. */
    grace: number,
    /** The program has a store of its own for ends, which is asked too. */
    hasStore: boolean,
  ) {
    this.#max = max;
    this.#grace = grace;
    this.#hasStore = hasStore;
  }

  /** Handlers, those that wait for another of their capability to end included. */
  get inFlight(): number {
    return this.#handlers;
  }

  /** Those that wait. */
  get queued(): number {
    return this.#rooms.waiting;
  }

  /** Calls that are on the present connection. */
  get onWire(): number {
    return this.#byId.size;
  }

  /** CALL: joins the handler that runs for this intent, tells its end again, or starts one. */
  onCall(cx: Context, offer: Offer | undefined, header: Dispatch, body: Uint8Array | undefined): void {
    // The hub remembers ids per caller, so two callers may use one id; and a hub that forgot must not get another
    // capability's result.
    const intent = `${header.caller}\0${header.capability}\0${header.request_id}`;
    const payload = body === undefined ? EMPTY : { bytes: body, contentType: header.content_type };
    const running = this.#byIntent.get(intent);
    if (running !== undefined) return this.#join(cx, running, { header, payload });
    const served = this.#memory.find(intent);
    if (served !== undefined) return this.#tellAgain(cx, intent, header, served);
    if (offer === undefined) {
      return refuse(cx, header, "unsupported", `no handler for ${header.capability}`);
    }
    if (this.#handlers >= this.#max) {
      return refuse(cx, header, "overloaded", `${this.#handlers} handlers run already`, true);
    }
    this.#start(cx, intent, offer.most, { header, payload });
  }

  #add(cx: Context, intent: string, header: Dispatch): Run {
    const run = new Run((this.#nextRun += 1), cx.now, intent, header);
    this.#runs.set(run.key, run);
    this.#byIntent.set(intent, run);
    this.#byId.set(header.id, run);
    return run;
  }

  /** Begins a run: as soon as the store has answered, if there is one. */
  #start(cx: Context, intent: string, most: number | undefined, { header, payload }: Again): void {
    const run = this.#add(cx, intent, header);
    run.most = most;
    run.waiting = { run: run.key, header, payload, credit: run.credit };
    this.#holds.push({ at: cx.now + ACCEPT_HOLD_MS, run });
    this.#handlers += 1;
    if (this.#hasStore) cx.effects.push({ do: "recall", run: run.key, intent });
    else this.#enter(cx, run);
  }

  /** The store has answered. */
  onRecalled(cx: Context, key: RunKey, served: Served | undefined): void {
    const run = this.#runs.get(key);
    if (run?.waiting === undefined || run.hasEntered) return;
    if (served === undefined) return this.#enter(cx, run);
    this.#handlers -= 1;
    run.waiting = undefined;
    run.remember(served);
    this.#memory.keep(cx.now, run.intent, served);
    this.#pump(cx, run);
  }

  /** Starts a run's handler, or puts it behind those of its capability. */
  #enter(cx: Context, run: Run): void {
    run.hasEntered = true;
    if (this.#rooms.enter(run)) begin(cx, run);
  }

  /** A handler is gone: its place goes to the next that waits for it. */
  #leave(cx: Context, run: Run, execution: number | undefined): void {
    this.#handlers -= 1;
    if (!run.hasEntered) return;
    this.#rooms.leave(run, execution);
    for (let next = this.#rooms.next(run); next !== undefined; next = this.#rooms.next(run)) begin(cx, next);
  }

  /** What ACCEPT can say of a run. */
  #outlook(run: Run): Outlook {
    const outlook = this.#rooms.outlook(run);
    return { ...outlook, time: run.expected ?? outlook.time };
  }

  /** The same intent again: after a reconnect, or by a retry. Its answers go to the newest CALL. */
  #join(cx: Context, run: Run, again: Again): void {
    const { header } = again;
    if (run.id !== undefined) {
      this.#byId.delete(run.id);
      // The hub keeps the cancelled call's slot until its end is told.
      if (run.isCancelled) cx.outbound.body(run.failed(run.id, CANCELLED));
    }
    run.answer(cx.now, header);
    this.#byId.set(header.id, run);
    if (run.isCancelled) {
      // The old run is on its way out. The intent runs again when it is gone, never beside it.
      run.again = again;
      return;
    }
    this.#due.delete(run);
    if (run.isTask && !run.chunks.canStartOver) {
      // What it said is no part of its result: what it says from now on is counted from 0.
      run.permitted = Math.max(run.permitted - run.chunks.produced, 0);
      run.chunks = new Chunks();
    }
    if (run.stream && !run.chunks.canStartOver) {
      const ran = run.outcome === undefined;
      run.outcome = { failure: failure("handler_error", NOT_KEPT) };
      run.sent = run.chunks.produced;
      if (ran) {
        cx.effects.push({ do: "abortRun", run: run.key });
        this.#leave(cx, run, undefined);
      }
      return this.#pump(cx, run);
    }
    accept(cx, run, this.#outlook(run));
    permit(cx, run);
    this.#pump(cx, run);
  }

  #tellAgain(cx: Context, intent: string, header: Dispatch, served: Served): void {
    if (served.chunks === undefined && header.stream && header.task_id === undefined) {
      return refuse(cx, header, "handler_error", NOT_KEPT);
    }
    const run = this.#add(cx, intent, header);
    run.remember(served);
    this.#pump(cx, run);
  }

  onEmit(cx: Context, key: RunKey, payload: Payload): void {
    const run = this.#runs.get(key);
    if (run === undefined || run.outcome !== undefined) return;
    run.chunks.push(payload);
    run.chunks.shrink(run.sent);
    this.#pump(cx, run);
  }

  onWouldTake(cx: Context, key: RunKey, time: number): void {
    const run = this.#runs.get(key);
    if (run === undefined) return;
    run.expected = time;
    if (run.preferred !== undefined && time > run.preferred) accept(cx, run, { before: undefined, time });
  }

  onCredit(cx: Context, id: Uint, n: Uint): void {
    const run = this.#byId.get(id);
    if (run === undefined) return;
    run.credit += Number(n);
    permit(cx, run);
    this.#pump(cx, run);
  }

  /** CANCEL, or an end that nobody waits for: the handler is told, and given up when it takes no notice. */
  onCancel(cx: Context, id: Uint): void {
    const run = this.#byId.get(id);
    if (run !== undefined) this.#cancel(cx, run);
  }

  #cancel(cx: Context, run: Run): void {
    if (run.outcome !== undefined) {
      // Nobody listens to the chunks any more; the end frees the slot that the hub keeps for us.
      run.stream = false;
      this.#pump(cx, run);
    } else if (run.isCancelled) {
      run.again = undefined;
    } else if (run.waiting !== undefined) {
      run.waiting = undefined;
      run.outcome = { failure: CANCELLED };
      this.#handlers -= 1;
      if (run.hasEntered) this.#rooms.giveUp(run);
      this.#pump(cx, run);
    } else {
      run.isCancelled = true;
      this.#due.set(run, cx.now + this.#grace);
      cx.effects.push({ do: "cancelRun", run: run.key });
    }
  }

  onFinished(cx: Context, key: RunKey, outcome: Outcome): void {
    const run = this.#runs.get(key);
    if (run === undefined || run.outcome !== undefined) return;
    run.execution = cx.now - run.started;
    run.outcome = run.isCancelled && "failure" in outcome ? { failure: CANCELLED } : outcome;
    run.isCancelled = false;
    this.#due.delete(run);
    this.#leave(cx, run, "payload" in outcome ? run.execution : undefined);
    this.#pump(cx, run);
    this.#settleHolds(cx);
  }

  /** Sends what may be sent: chunks within the credit, then the end. */
  #pump(cx: Context, run: Run): void {
    if (run.again !== undefined) {
      if (run.outcome !== undefined) this.#close(cx, run);
      return;
    }
    const id = run.id;
    if (id !== undefined && cx.link.canAnswer) {
      for (let chunk = run.nextChunk(id); chunk !== undefined; chunk = run.nextChunk(id)) cx.outbound.body(chunk);
      run.chunks.shrink(run.sent);
      if (run.outcome !== undefined && (!run.stream || run.sent >= run.chunks.produced)) {
        cx.outbound.body(run.result(id, cx.link.terms.maxMessage));
        return this.#close(cx, run);
      }
    }
    // The hub is away: memory answers when it asks again.
    if (run.outcome !== undefined && run.id === undefined) this.#close(cx, run);
  }

  /** Forgets a run that is over, keeping its end where a repeated CALL may want it. */
  #close(cx: Context, run: Run): void {
    this.#runs.delete(run.key);
    this.#byIntent.delete(run.intent);
    if (run.id !== undefined) this.#byId.delete(run.id);
    this.#due.delete(run);
    if (run.outcome !== undefined && isFinal(run.outcome) && !run.remembered) {
      const chunks = run.isTask ? [] : run.chunks.canStartOver ? run.chunks.kept : undefined;
      const served: Served = { outcome: run.outcome, chunks, executionMs: run.execution };
      this.#memory.keep(cx.now, run.intent, served);
      if (this.#hasStore) cx.effects.push({ do: "keep", intent: run.intent, served });
    }
    if (run.again !== undefined) this.#startAgain(cx, run, run.again);
  }

  /** A CALL that came while its intent was being cancelled. If the old run completed after all, its end answers; else
   * the intent runs now. */
  #startAgain(cx: Context, { intent, most }: Run, again: Again): void {
    const served = this.#memory.find(intent);
    if (served !== undefined) this.#tellAgain(cx, intent, again.header, served);
    else this.#start(cx, intent, most, again);
  }

  /** The connection is gone; handlers go on, for the hub to ask again. */
  lost(cx: Context): void {
    this.#byId.clear();
    this.#holds.clear();
    for (const run of this.#runs.values()) {
      run.id = undefined;
      run.again = undefined;
      if (run.outcome !== undefined) this.#close(cx, run);
      else if (!run.isCancelled) this.#due.set(run, Math.max(run.deadline, cx.now + ORPHAN));
    }
  }

  onTimeout(cx: Context): void {
    this.#memory.expire(cx.now);
    this.#settleHolds(cx);
    for (const [run, at] of this.#due) {
      if (at > cx.now) continue;
      this.#due.delete(run);
      if (run.isCancelled) this.#giveUp(cx, run);
      else this.#cancel(cx, run);
    }
  }

  /** Answers a cancelled call without its handler, which took no notice. JavaScript has no means to stop it: it holds its
   * place, and its intent, until it ends. */
  #giveUp(cx: Context, run: Run): void {
    if (run.id === undefined || run.again !== undefined) return;
    if (cx.link.canAnswer) cx.outbound.body(run.failed(run.id, CANCELLED));
    this.#byId.delete(run.id);
    run.id = undefined;
  }

  /** Sends the ACCEPTs that are due, and forgets those that something else stood for. */
  #settleHolds(cx: Context): void {
    for (let hold = this.#holds.peek(); hold !== undefined; hold = this.#holds.peek()) {
      const { at, run } = hold;
      if (!run.accepted && run.outcome === undefined) {
        if (at > cx.now) return;
        accept(cx, run, this.#outlook(run));
      }
      this.#holds.shift();
    }
  }

  /** The agent ends: no handler outlives it. */
  abortAll(cx: Context): void {
    for (const [key, run] of this.#runs) {
      if (run.outcome !== undefined) continue;
      cx.effects.push({ do: "abortRun", run: key });
      if (run.id !== undefined && cx.link.canAnswer) {
        cx.outbound.body(run.failed(run.id, failure("cancelled", "the agent closes")));
      }
    }
    this.#handlers = 0;
    this.#runs.clear();
    this.#due.clear();
    this.#byId.clear();
    this.#byIntent.clear();
    this.#rooms = new Rooms();
    this.#holds.clear();
  }

  get nextTimeout(): Now {
    let at = Math.min(this.#holds.peek()?.at ?? Infinity, this.#memory.nextTimeout);
    for (const due of this.#due.values()) at = Math.min(at, due);
    return at;
  }
}

function refuse(cx: Context, header: Dispatch, code: string, text: string, retryable = false): void {
  cx.outbound.body(refusal(header.id, failure(code, text, retryable), header.request_id, header.call_id));
}

/** ACCEPT. It says when the caller's wish will be missed. */
function accept(cx: Context, run: Run, outlook: Outlook): void {
  if (run.id === undefined || !cx.link.canAnswer) return;
  run.accepted = true;
  let depth = outlook.before;
  // Of a task 0 says that its handler has begun, and nothing that it has not.
  if (run.isTask) depth = run.waiting === undefined ? 0 : depth === 0 ? undefined : depth;
  const { time } = outlook;
  const isLate = time !== undefined && run.preferred !== undefined && time > run.preferred;
  const waitMs = isLate ? Math.ceil(time) : undefined;
  const header = { id: run.id, queue_depth: depth, would_timeout: isLate, wait_ms: waitMs };
  cx.outbound.control(encodeToHub(Kind.Accept, header));
}

/** A run's handler starts. */
function begin(cx: Context, run: Run): void {
  const call = run.waiting;
  if (call === undefined) return;
  run.waiting = undefined;
  run.started = cx.now;
  run.permitted = run.credit;
  // With the credit that came meanwhile.
  call.credit = run.credit;
  cx.effects.push({ do: "run", call });
  // The hub shows a task that waits in its provider apart from one that is worked on.
  if (run.isTask && run.accepted) accept(cx, run, { before: undefined, time: run.expected });
}

/** Lets a handler emit what its credit has become. One that still waits gets it when it starts. */
function permit(cx: Context, run: Run): void {
  if (run.waiting !== undefined || run.credit <= run.permitted) return;
  cx.effects.push({ do: "grant", run: run.key, n: run.credit - run.permitted });
  run.permitted = run.credit;
}
