/** The one connection: which phase it is in, whether the other end lives, when to dial again. */

import { MESSAGE_BYTES_DEFAULT } from "../limits.js";
import type { Welcome } from "../frames/index.js";
import type { Backoff, Random } from "./backoff.js";
import type { Now } from "./types.js";

/** HELLO must be answered in this time. */
const GREETING = 10_000;
/** After the hub's GOODBYE open calls may end on the old connection for this long. */
const LEAVING = 15_000;
/** After our own GOODBYE the hub's close is waited for so long. */
const CLOSING = 2_000;
/** Longest wait for a dial after a machine woke up, or its network came back. */
const WAKING = 1_000;

/**
 * Where the connection stands: `waiting` for the next dial; `dialing`; `greeting`, HELLO sent; `ready`, in session;
 * `leaving`, the hub said GOODBYE and what is open may end; `parting`, nothing is open any more on a connection that the
 * hub leaves; `closing`, we said GOODBYE; `stopped`, never again.
 */
export type Phase = "waiting" | "dialing" | "greeting" | "ready" | "leaving" | "parting" | "closing" | "stopped";

/** Limits and times that WELCOME gave. */
export interface Terms {
  keepalive: number;
  suspect: number;
  gone: number;
  maxMessage: number;
  maxInFlight: number;
}

export function termsOf(welcome: Welcome): Terms {
  // A hub that says zero must not make a busy loop of us.
  const ms = (n: number | bigint): number => Math.max(Number(n), 10);
  return {
    keepalive: ms(welcome.keepalive_ms),
    suspect: ms(welcome.suspect_ms),
    gone: ms(welcome.gone_ms),
    maxMessage: Number(welcome.max_message),
    maxInFlight: Math.max(Number(welcome.max_in_flight), 1),
  };
}

/** The connection's state. */
export class Link {
  phase: Phase = "waiting";
  /** When the phase ends by itself; of `ready` when it began. */
  at: Now = 0;
  terms: Terms = {
    keepalive: 5000,
    suspect: 15_000,
    gone: 30_000,
    maxMessage: MESSAGE_BYTES_DEFAULT,
    maxInFlight: 1024,
  };
  wrote: Now = 0;
  /** A GOODBYE with a word that is not in our table: the close code will say what it means. */
  unknownGoodbye: { word: string; reason: string } | undefined;
  #heardAt: Now = 0;
  #pingedAt: Now | undefined;
  /** When a GOODBYE asked us to come back. */
  #comeBackAt: Now | undefined;
  #wokeAt: Now = -Infinity;
  /** The wait of `waiting` is the hub's wish, and not to be shortened. */
  #isWished = false;

  readonly #backoff: Backoff;
  readonly #random: Random;

  constructor(backoff: Backoff, random: Random) {
    this.#backoff = backoff;
    this.#random = random;
  }

  #set(phase: Phase, at: Now): void {
    this.phase = phase;
    this.at = at;
  }

  /** Whether envelopes may be written at all. */
  get isOpen(): boolean {
    return this.phase === "greeting" || this.canAnswer;
  }

  get isReady(): boolean {
    return this.phase === "ready";
  }

  /** Whether answers to what the hub asked can be sent. */
  get canAnswer(): boolean {
    return this.phase === "ready" || this.phase === "leaving";
  }

  opened(now: Now): void {
    this.#set("greeting", now + GREETING);
    this.heard(now);
    this.wrote = now;
    this.#comeBackAt = undefined;
    this.unknownGoodbye = undefined;
  }

  heard(now: Now): void {
    this.#heardAt = now;
    this.#pingedAt = undefined;
  }

  ready(now: Now, terms: Terms): void {
    this.terms = terms;
    this.#set("ready", now);
  }

  /** The hub goes, and we may come back. */
  leave(now: Now, within: number | undefined): void {
    this.#judgeLife(now);
    this.#set("leaving", now + LEAVING);
    this.#comeBackAt = within === undefined ? undefined : now + this.#random() * within;
  }

  /** The connection that the hub leaves is no longer needed. */
  part(now: Now): void {
    this.#set("parting", now + CLOSING);
  }

  close(now: Now): void {
    this.#set("closing", now + CLOSING);
  }

  /** Only a session that lived a while makes the waits short again: a hub that greets and throws out would otherwise be
   * dialled once a second for ever. */
  #judgeLife(now: Now): void {
    if (this.phase === "ready" && now - this.at >= this.terms.gone / 2) this.#backoff.reset();
  }

  /** The socket is gone, or never came: waits before the next dial. */
  lost(now: Now): void {
    this.#judgeLife(now);
    const wait = this.#backoff.next(this.#random);
    // A window that the hub gave replaces our own wait: it knows when the next hub is there.
    this.#isWished = this.#comeBackAt !== undefined;
    this.#set("waiting", Math.max(this.#comeBackAt ?? now + wait, now));
    this.#comeBackAt = undefined;
    // Browsers close the socket of a page that slept just after they woke it.
    if (now - this.#wokeAt < WAKING) this.#hasten(now);
  }

  /** The machine woke up: the wait of before it slept says nothing any more. */
  woke(now: Now): void {
    this.#wokeAt = now;
    this.#hasten(now);
  }

  #hasten(now: Now): void {
    if (this.phase !== "waiting" || this.#isWished) return;
    this.at = Math.min(this.at, now + this.#random() * WAKING);
  }

  /** Looks at the silence of the other end. `eager`: asks for a sign of life at once. */
  liveness(now: Now, eager = false): "fine" | "ping" | "dead" {
    if (!this.canAnswer) return "fine";
    if (this.#pingedAt !== undefined) return now >= this.#deadAt(this.#pingedAt) ? "dead" : "fine";
    const silent = now - this.#heardAt;
    if (silent < (eager ? this.terms.keepalive : this.terms.suspect)) return "fine";
    this.#pingedAt = now;
    return "ping";
  }

  /** Half way from `suspect_ms` to `gone_ms`, counted from the ping: a timer that a browser held back, or a machine that
   * slept, must not take its own silence for the hub's. */
  #deadAt(pinged: Now): Now {
    return pinged + (this.terms.gone - this.terms.suspect) / 2;
  }

  /** Whether the hub must hear from us: two thirds of what it allows, so that one late wake-up costs nothing. */
  mustSpeak(now: Now): boolean {
    return this.canAnswer && now >= this.#speakAt;
  }

  get #speakAt(): Now {
    return this.wrote + (this.terms.keepalive * 2) / 3;
  }

  get #silenceAt(): Now {
    return this.#pingedAt === undefined ? this.#heardAt + this.terms.suspect : this.#deadAt(this.#pingedAt);
  }

  get nextTimeout(): Now {
    switch (this.phase) {
      case "waiting":
      case "greeting":
      case "parting":
      case "closing":
        return this.at;
      case "ready":
        return Math.min(this.#speakAt, this.#silenceAt);
      case "leaving":
        return Math.min(this.at, this.#speakAt, this.#silenceAt);
      case "dialing":
      case "stopped":
        return Infinity;
    }
  }
}
