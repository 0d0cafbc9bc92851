import { Histogram } from "./histogram.ts";

/** What happened in one second. */
export class Second {
  /** Seconds since the Unix epoch; 0: never used. */
  at = 0;
  started = 0;
  completed = 0;
  failed = 0;
  readonly times = new Histogram();

  /** Begins anew as another second. */
  reset(at: number): void {
    this.at = at;
    this.started = 0;
    this.completed = 0;
    this.failed = 0;
    this.times.clear();
  }
}

/** How long the past is that is kept, in seconds. */
export const KEPT_SECONDS = 300;

/** The last minutes, second by second, in memory that is taken once. */
export class Seconds {
  readonly #slots = Array.from({ length: KEPT_SECONDS }, () => new Second());
  #first = 0;

  /** The slot of a moment in milliseconds. */
  of(ms: number): Second {
    const at = Math.floor(ms / 1000);
    const slot = this.#slots[at % KEPT_SECONDS]!;
    if (slot.at !== at) slot.reset(at);
    if (this.#first === 0) this.#first = at;
    return slot;
  }

  /** The seconds before a moment that are over, the oldest first; of one without events an empty one. */
  before(ms: number, count: number): Second[] {
    const now = Math.floor(ms / 1000);
    const from = Math.max(now - Math.min(count, KEPT_SECONDS - 1), this.#first);
    const found: Second[] = [];
    if (this.#first === 0) return found;
    for (let at = from; at < now; at += 1) {
      const slot = this.#slots[at % KEPT_SECONDS]!;
      if (slot.at !== at) slot.reset(at);
      found.push(slot);
    }
    return found;
  }
}
