import { Histogram } from "./histogram.ts";
import { Ring } from "./ring.ts";

/** One ended call, as far as figures need it. */
interface Ended {
  at: number;
  us: number;
  ok: boolean;
}

/** How many of the newest calls figures are made of. */
const KEPT = 256;

/** The newest ended calls of one capability or agent. */
export class Figures {
  /** Since the page is open. */
  completed = 0;
  failed = 0;
  readonly #newest = new Ring<Ended>(KEPT);

  /** @param since when somebody began to count. */
  constructor(readonly since: number) {}

  add(at: number, us: number, ok: boolean): void {
    if (ok) this.completed += 1;
    else this.failed += 1;
    this.#newest.push({ at, us, ok });
  }

  get total(): number {
    return this.completed + this.failed;
  }

  /** Share of the newest that went well; none of nothing. */
  get success(): number | undefined {
    if (this.#newest.length === 0) return undefined;
    let ok = 0;
    for (const one of this.#newest) ok += one.ok ? 1 : 0;
    return ok / this.#newest.length;
  }

  /** A quantile of the newest times, in microseconds. */
  quantile(share: number): number | undefined {
    const times = new Histogram();
    for (const one of this.#newest) times.add(one.us);
    return times.quantile(share);
  }

  /** Ended calls a second, over at most the last minute. */
  rate(now: number): number {
    let count = 0;
    let oldest = now;
    for (const one of this.#newest) {
      if (now - one.at > 60_000) break;
      count += 1;
      oldest = one.at;
    }
    // A full ring may not reach back a whole minute, and neither does a page that was just opened.
    const span = count < KEPT ? Math.min(now - this.since, 60_000) : now - oldest;
    return (count * 1000) / Math.max(span, 1000);
  }
}

/** Figures by name, bounded: beyond the bound the name that was used least recently is forgotten. */
export class FiguresByName {
  readonly #by = new Map<string, Figures>();
  #since: number | undefined;

  constructor(readonly capacity: number) {}

  /** The figures of a name, for something that happens now. */
  of(name: string, now: number): Figures {
    this.#since ??= now;
    let figures = this.#by.get(name);
    if (figures === undefined) {
      figures = new Figures(this.#since);
      if (this.#by.size >= this.capacity) this.#by.delete(this.#by.keys().next().value!);
    } else {
      this.#by.delete(name);
    }
    this.#by.set(name, figures);
    return figures;
  }

  get(name: string): Figures | undefined {
    return this.#by.get(name);
  }

  entries(): IterableIterator<[string, Figures]> {
    return this.#by.entries();
  }
}
