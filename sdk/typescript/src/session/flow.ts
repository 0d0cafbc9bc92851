/** What came of a call's pieces and parts. */

/** What a chunk is worth: the one that was due; told already, or nobody waits for it; or one before it is missing. */
export type Arrival = "due" | "stale" | { gapAt: number };

/** Numbers of one call's chunks. */
export class Flow {
  #nextSeq = 0;
  readonly #byTarget = new Map<string, number>();
  readonly #ended = new Set<string>();

  /** Chunks allowed since seq 0. */
  #granted: number;

  constructor(granted: number) {
    this.#granted = granted;
  }

  arrives(target: string | undefined, seq: number): Arrival {
    if (target !== undefined && this.#ended.has(target)) return "stale";
    const due = target === undefined ? this.#nextSeq : (this.#byTarget.get(target) ?? 0);
    if (seq < due) return "stale";
    if (seq > due) return { gapAt: due };
    if (target === undefined) this.#nextSeq += 1;
    else this.#byTarget.set(target, due + 1);
    return "due";
  }

  /** One target's end. False when it was told before: a hub that is asked again says it again. */
  end(target: string): boolean {
    if (this.#ended.has(target)) return false;
    this.#ended.add(target);
    return true;
  }

  grant(n: number): void {
    this.#granted += n;
  }

  /** What the caller has room for now. */
  get window(): number {
    return Math.max(this.#granted - this.#nextSeq, 0);
  }
}
