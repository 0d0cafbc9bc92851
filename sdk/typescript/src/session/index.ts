/**
 * The session: every decision of the SDK, with time and chance passed in. No socket, no clock, no timer.
 *
 * {@link Session.handle} takes what happened and says what is to be done; what is to be written waits in
 * {@link Session.pop}; {@link Session.nextTimeout} says when to come back.
 */

import { ConnectError, type CloseReason } from "../errors.js";
import {
  decodeToAgent,
  encodeToHub,
  FrameError,
  Kind,
  type ErrorReply,
  type FrameToAgent,
  type Goodbye,
  type Update,
  type Welcome,
} from "../frames/index.js";
import { Asked } from "./asked.js";
import type { Backoff, Random } from "./backoff.js";
import { comesBack, GOODBYE, isFinalClose, wordOf } from "./goodbye.js";
import { Link, termsOf } from "./link.js";
import { Outbound } from "./outbound.js";
import type { Registration, Work } from "./registration.js";
import { failure, refusal } from "./run.js";
import { Running } from "./running.js";
import type { Context, Effect, Input, Now } from "./types.js";

/** Longest window for coming back that a hub's GOODBYE is believed, in milliseconds. */
const AWAY_MAX = 3_600_000;

const CLOSED = "the agent is closed";
const BY_PROGRAM: CloseReason = { kind: "closed", message: "closed by this program" };

/** What a session is made of. */
export interface SessionOptions {
  registration: Registration;
  backoff: Backoff;
  random: Random;
  /** Milliseconds that a cancelled handler may take to end by itself. */
  cancelGrace: number;
  /** The program has a store of its own for ends of calls. */
  hasStore: boolean;
  /** The socket can send WebSocket pings. Where it cannot, in browsers, a small call asks for a sign of life. */
  canPing: boolean;
}

/** The state of one agent's life. */
export class Session {
  readonly #registration: Registration;
  readonly #link: Link;
  readonly #asked: Asked;
  readonly #running: Running;
  /** The agent closes: at the latest then. */
  #drain: Now | undefined;
  readonly #cx: Context;

  readonly #options: SessionOptions;

  constructor(options: SessionOptions) {
    this.#options = options;
    const { registration, backoff, random, cancelGrace, hasStore } = options;
    this.#registration = registration;
    this.#link = new Link(backoff, random);
    this.#asked = new Asked(random);
    this.#running = new Running(registration.maxConcurrency, cancelGrace, hasStore);
    this.#cx = { now: 0, link: this.#link, outbound: new Outbound(), effects: [] };
  }

  /** The next message for the socket. */
  pop(): Uint8Array | undefined {
    return this.#cx.outbound.pop();
  }

  /** Whether the socket may be read. */
  get mayRead(): boolean {
    return this.#cx.outbound.mayRead;
  }

  /** Whether a session is open. */
  get isReady(): boolean {
    return this.#link.isReady;
  }

  /** Whether no call is left. For tests. */
  get isEmpty(): boolean {
    return this.#asked.isEmpty && this.#running.inFlight === 0;
  }

  /** When the input `timeout` is due; `Infinity`: never. */
  get nextTimeout(): Now {
    if (this.#link.phase === "stopped") return Infinity;
    // Once the goodbye is said, the bound of the drain is behind us.
    const drain = this.#link.phase === "closing" ? Infinity : (this.#drain ?? Infinity);
    return Math.min(this.#link.nextTimeout, this.#asked.nextTimeout, this.#running.nextTimeout, drain);
  }

  /** Takes what happened, and gives what is to be done, in order. */
  handle(now: Now, input: Input): Effect[] {
    const effects: Effect[] = [];
    this.#cx.effects = effects;
    this.#cx.now = now;
    if (this.#link.phase === "stopped") {
      if (input.is !== "open" && input.is !== "claim") return effects;
      this.#input(now, input);
      this.#asked.failAll(this.#cx, CLOSED);
      return effects;
    }
    this.#input(now, input);
    this.#settle(now);
    return effects;
  }

  #input(now: Now, input: Input): void {
    const cx = this.#cx;
    const asked = this.#asked;
    const running = this.#running;
    switch (input.is) {
      case "message":
        return this.#message(now, input.message);
      case "open":
        return asked.open(cx, input.key, input.spec);
      case "finished":
        return running.onFinished(cx, input.run, input.outcome);
      case "wrote":
        this.#link.wrote = now;
        // What waited for room in the queue may have it now.
        return asked.sendWaiting(cx);
      case "timeout":
        return this.#timeout(now);
      case "emit":
        return running.onEmit(cx, input.run, input.payload);
      case "consumed":
        return asked.consumed(cx, input.key, input.n, input.target);
      case "cancel":
        return asked.cancel(cx, input.key);
      case "withdraw":
        return asked.withdraw(cx, input.key);
      case "forget":
        return asked.forget(cx, input.key);
      case "claim":
        return asked.results.claim(cx, input.key, input.taskId);
      case "received":
        return asked.results.taken(cx, input.taskId);
      case "wouldTake":
        return running.onWouldTake(cx, input.run, input.ms);
      case "recalled":
        return running.onRecalled(cx, input.run, input.served);
      case "start":
        return this.#dial();
      case "opened":
        return this.#opened(now);
      case "dialFailed":
        return this.#dialFailed(now, input.error);
      case "text":
        return this.#untrusted(now, "a text message");
      case "alive":
        return this.#link.heard(now);
      case "lost":
        return this.#lost(now, input.code, input.reason);
      case "woke":
        this.#link.woke(now);
        return this.#timeout(now, true);
      case "close":
        return this.#close(now, input.within);
      case "setLoad":
        this.#registration.load = input.load;
        return this.#update();
      case "setStatus":
        this.#registration.status = input.status;
        return this.#update({ status: input.status });
      case "add":
        this.#registration.offers.set(input.offer.header.name, input.offer);
        return this.#update({ add: [input.offer.header] });
      case "remove":
        this.#registration.offers.delete(input.name);
        return this.#update({ remove: [input.name] });
    }
  }

  get #work(): Work {
    const waiting = this.#running.queued;
    return { running: this.#running.inFlight - waiting, waiting };
  }

  #update(change?: Omit<Update, "load">): void {
    if (this.#link.canAnswer) this.#cx.outbound.control(this.#registration.update(this.#work, change));
  }

  #warn(text: string): void {
    this.#cx.effects.push({ do: "warn", text });
  }

  #dial(): void {
    this.#link.phase = "dialing";
    this.#cx.effects.push({ do: "dial" });
  }

  #opened(now: Now): void {
    if (this.#link.phase !== "dialing") {
      this.#cx.effects.push({ do: "abort" });
      return;
    }
    this.#link.opened(now);
    this.#cx.outbound.control(this.#registration.hello(this.#work));
  }

  #dialFailed(now: Now, error: ConnectError): void {
    if (error.isFinal) return this.#stop({ kind: "connect", message: error.message, error });
    this.#link.lost(now);
    this.#cx.effects.push({ do: "lost", reason: error.message });
  }

  #lost(now: Now, closeCode: number | undefined, reason: string): void {
    const { phase } = this.#link;
    if (phase === "dialing" || phase === "waiting") return;
    this.#cx.outbound.clear();
    if (phase === "closing") return this.#stop(BY_PROGRAM);
    const unknown = this.#link.unknownGoodbye;
    this.#link.unknownGoodbye = undefined;
    if (isFinalClose(closeCode)) {
      return this.#stop(goodbyeReason(unknown?.word ?? wordOf(closeCode!), unknown?.reason ?? reason));
    }
    this.#link.lost(now);
    this.#asked.lost(now);
    this.#running.lost(this.#cx);
    this.#cx.effects.push({ do: "lost", reason: reason === "" ? `closed with ${closeCode ?? "no code"}` : reason });
  }

  /** Lets the socket go without waiting for the other end. */
  #abort(now: Now, reason: string): void {
    this.#cx.effects.push({ do: "abort" });
    this.#lost(now, undefined, reason);
  }

  #message(now: Now, message: Uint8Array): void {
    // What was read in one go with the message that ended the session means nothing any more.
    if (!this.#link.isOpen && this.#link.phase !== "closing") return;
    this.#link.heard(now);
    try {
      this.#frame(now, decodeToAgent(message));
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      if (error.reason === "untrusted") this.#untrusted(now, error.message);
      else if (error.reason === "malformed") this.#malformed(now, error);
      // Kinds that are unknown, or of the other direction, are passed over.
    }
  }

  #frame(now: Now, frame: FrameToAgent): void {
    if (frame.kind === Kind.Goodbye) return this.#goodbye(now, frame.header);
    if (this.#link.phase === "greeting") {
      if (frame.kind === Kind.Welcome) return this.#welcome(now, frame.header);
      if (frame.kind === Kind.Error) return this.#fault(frame.header);
      return this.#untrusted(now, "an envelope before WELCOME");
    }
    if (!this.#link.canAnswer) return;
    const cx = this.#cx;
    const asked = this.#asked;
    const running = this.#running;
    switch (frame.kind) {
      case Kind.Accept:
        return asked.onAccept(cx, frame.header);
      case Kind.Chunk:
        return asked.onChunk(cx, frame.header, frame.body);
      case Kind.Result:
        return asked.onResult(cx, frame.header, frame.body);
      case Kind.Credit:
        return running.onCredit(cx, frame.header.id, frame.header.n);
      case Kind.Cancel:
        return running.onCancel(cx, frame.header.id);
      case Kind.Call: {
        const offer = this.#registration.offers.get(frame.header.capability);
        return running.onCall(cx, offer, frame.header, frame.body);
      }
      case Kind.Error:
        return this.#fault(frame.header);
      default:
    }
  }

  #welcome(now: Now, welcome: Welcome): void {
    this.#link.ready(now, termsOf(welcome));
    for (const warning of welcome.warnings) this.#warn(`the hub warns: ${warning}`);
    const maxMessage = this.#link.terms.maxMessage;
    this.#cx.effects.push({ do: "ready", maxMessage, session: welcome.session });
    this.#asked.resume(this.#cx);
  }

  /** ERROR: one of our envelopes could not be used. Costs at most the call that it belonged to. */
  #fault(header: ErrorReply): void {
    this.#warn(`the hub could not use kind ${header.ref_kind.toString()}: ${header.code}: ${header.message}`);
    const kinds: unknown[] = [Kind.Call, Kind.Credit, Kind.Cancel];
    if (header.id === undefined || !kinds.includes(header.ref_kind)) return;
    this.#asked.onFault(this.#cx, header.id, header.code, header.message);
  }

  /** An envelope of the hub whose header cannot be read: fails the one thing that it is about. */
  #malformed(now: Now, { kind, id, message }: FrameError): void {
    this.#warn(`cannot read kind ${String(kind)}: ${message}`);
    if (kind === Kind.Welcome) return this.#untrusted(now, message);
    if (kind === Kind.Goodbye) return this.#abort(now, "a GOODBYE that cannot be read");
    if (id === undefined) return;
    if (kind === Kind.Call) {
      this.#cx.outbound.body(refusal(id, failure("invalid_request", message)));
    } else if (kind === Kind.Accept || kind === Kind.Chunk || kind === Kind.Result) {
      this.#asked.onFault(this.#cx, id, kind === Kind.Chunk ? "interrupted" : "decode", message);
    }
  }

  /** The other end does not speak the protocol: leave, and try again later. */
  #untrusted(now: Now, reason: string): void {
    this.#warn(`the hub broke the protocol: ${reason}`);
    this.#abort(now, reason);
  }

  #goodbye(now: Now, goodbye: Goodbye): void {
    const reason = goodbye.reason ?? "";
    if (this.#link.phase === "closing") return;
    const back = comesBack(goodbye.code);
    if (back === false) {
      this.#cx.effects.push({ do: "abort" });
      return this.#stop(goodbyeReason(goodbye.code, reason));
    }
    const after = goodbye.reconnect_after_ms;
    this.#link.leave(now, after === undefined ? undefined : Math.min(Number(after), AWAY_MAX));
    if (back === undefined) this.#link.unknownGoodbye = { word: goodbye.code, reason };
    if (goodbye.code === "slow_consumer") this.#asked.cut(this.#cx);
  }

  #close(now: Now, within: number): void {
    if (this.#drain === undefined) {
      this.#drain = now + within;
      this.#registration.status = "draining";
      this.#update({ status: "draining" });
    } else {
      this.#drain = Math.min(this.#drain, now + within);
    }
  }

  #timeout(now: Now, eager = false): void {
    const link = this.#link;
    if (now >= link.at) {
      switch (link.phase) {
        case "waiting":
          this.#dial();
          break;
        case "greeting":
          this.#abort(now, "no WELCOME in time");
          break;
        case "leaving":
        case "parting":
          this.#abort(now, "left after goodbye");
          break;
        case "closing":
          this.#cx.effects.push({ do: "abort" });
          return this.#stop(BY_PROGRAM);
        default:
      }
    }
    const liveness = link.liveness(now, eager);
    if (liveness === "ping") {
      if (this.#options.canPing) this.#cx.effects.push({ do: "ping" });
      else this.#asked.probe(this.#cx, this.#registration.agentId);
    }
    if (liveness === "dead") this.#abort(now, "the hub is silent");
    if (link.mustSpeak(now) || (eager && link.canAnswer)) {
      // Counts as written now, lest a socket that takes nothing makes one more with every wake-up.
      link.wrote = now;
      this.#update();
    }
    this.#asked.onTimeout(this.#cx);
    this.#running.onTimeout(this.#cx);
  }

  /** Ends what has nothing left to wait for: a connection that the hub leaves, and a drained agent. */
  #settle(now: Now): void {
    const link = this.#link;
    const cx = this.#cx;
    const isIdle = this.#asked.onWire === 0 && this.#running.onWire === 0 && cx.outbound.isEmpty;
    if (link.phase === "leaving" && link.unknownGoodbye === undefined && isIdle) {
      // Closed in order, since the last answers may still be on their way out.
      link.part(now);
      cx.effects.push({ do: "close", code: GOODBYE["normal"]! });
    }
    if (this.#drain === undefined || link.phase === "closing" || link.phase === "stopped") return;
    if (this.#running.inFlight > 0 && now < this.#drain) return;
    this.#running.abortAll(cx);
    this.#asked.failAll(cx, CLOSED);
    if (!link.isOpen) return this.#stop(BY_PROGRAM);
    cx.outbound.body(encodeToHub(Kind.Goodbye, { code: "normal" }));
    link.close(now);
    cx.effects.push({ do: "close", code: GOODBYE["normal"]! });
  }

  #stop(reason: CloseReason): void {
    this.#link.phase = "stopped";
    this.#drain = undefined;
    this.#cx.outbound.clear();
    this.#running.abortAll(this.#cx);
    this.#asked.failAll(this.#cx, reason.message);
    this.#cx.effects.push({ do: "stopped", reason });
  }
}

function goodbyeReason(code: string, reason: string): CloseReason {
  return { kind: "goodbye", code, message: `the hub ended the session: ${code}: ${reason}` };
}
