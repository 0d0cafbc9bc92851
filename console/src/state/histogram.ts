/** Buckets for each doubling: a quantile is at most a fifth too high. */
const PER_DOUBLING = 4;
const BUCKETS = 128;

function bucketOf(us: number): number {
  return Math.min(BUCKETS - 1, Math.floor(Math.log2(Math.max(us, 0) + 1) * PER_DOUBLING));
}

/** Times in microseconds, counted in buckets: a fixed size, whatever comes. */
export class Histogram {
  readonly #counts = new Uint32Array(BUCKETS);
  #total = 0;

  add(us: number): void {
    this.#counts[bucketOf(us)]! += 1;
    this.#total += 1;
  }

  get total(): number {
    return this.#total;
  }

  /** Counts another one's times as well. */
  merge(other: Histogram): void {
    for (let at = 0; at < BUCKETS; at += 1) this.#counts[at]! += other.#counts[at]!;
    this.#total += other.#total;
  }

  clear(): void {
    this.#counts.fill(0);
    this.#total = 0;
  }

  /** The upper end of the bucket that a share of all times lies below, in microseconds; none of nothing. */
  quantile(share: number): number | undefined {
    if (this.#total === 0) return undefined;
    let left = Math.max(1, Math.ceil(this.#total * share));
    for (let at = 0; at < BUCKETS; at += 1) {
      left -= this.#counts[at]!;
      if (left <= 0) return 2 ** ((at + 1) / PER_DOUBLING) - 1;
    }
    return undefined;
  }
}
