/**
 * How quickly calls go out after the hub ended the connection as a slow consumer's.
 *
 * Everything that was open would be answered at once, and would be too much at once again. So the next call goes out when
 * one has ended, or when its pause is over: results of any size come one after the other, and what takes long holds up
 * nothing.
 */

import type { Now } from "./types.js";

/** The pause after a call, doubled by each time that this call was cut off, and its most. */
const STEP = 100;
const MOST = 2000;
/** A call that was cut off so often, by sessions that lived shortly, fails. */
export const CUTS_MAX = 5;

export class Pace {
  #isSlow = false;
  /** When the next call may go out at the latest; undefined: now. */
  #at: Now | undefined;

  get at(): Now | undefined {
    return this.#at;
  }

  /** The connection was ended as a slow consumer's. */
  cut(): void {
    this.#isSlow = true;
    this.#at = undefined;
  }

  /** A call went out, which was cut off so often. */
  sent(now: Now, cuts: number): void {
    if (this.#isSlow) this.#at = now + Math.min(STEP * 2 ** cuts, MOST);
  }

  /** A call ended, or the connection. */
  go(): void {
    this.#at = undefined;
  }

  /** Time passes. */
  passes(now: Now): void {
    if (this.#at !== undefined && this.#at <= now) this.#at = undefined;
  }

  /** Everything went out. */
  caughtUp(): void {
    this.#isSlow = false;
    this.#at = undefined;
  }
}
