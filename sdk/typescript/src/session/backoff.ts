/** When to dial again, and the chance in it. */

/** Gives a number from 0 up to, not including, 1. Chance is an argument, as time is. */
export type Random = () => number;

/** Counts the failures in a row; the ceiling doubles with each. */
export class Backoff {
  #failures = 0;

  readonly #first: number;
  readonly #most: number;

  constructor(
    /** Ceiling of the first wait, in milliseconds. */
    first = 1000,
    /** Ceiling of every later wait, in milliseconds. */
    most = 60_000,
  ) {
    this.#first = first;
    this.#most = most;
  }

  /** Ceiling of the next wait. */
  get window(): number {
    return Math.min(this.#first * 2 ** Math.min(this.#failures, 20), this.#most);
  }

  /** The next wait: jittered from the first on, so that a fleet never comes back in one second. */
  next(random: Random): number {
    const wait = random() * this.window;
    this.#failures += 1;
    return wait;
  }

  /** A session lived long enough to count as a success. */
  reset(): void {
    this.#failures = 0;
  }
}
