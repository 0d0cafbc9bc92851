import { hasFailed, type CallRow } from "../state/calls.ts";
import type { Trace } from "../state/views.ts";
import type { World } from "../state/world.ts";

/** How often some traces are asked for, and how many at a time. */
const EVERY_MS = 1000;
const EACH_TIME = 4;

/**
 * Asks for the traces of a few of the calls that end. The hub keeps the last few thousand: those of a busy hub are gone
 * before somebody looks. Failed and slow calls go first.
 */
export class Sampler {
  #seen = 0;

  constructor(
    readonly world: World,
    readonly trace: (id: string) => Promise<Trace>,
  ) {}

  /** Goes on for as long as it is wanted. */
  start(wanted: () => boolean): void {
    const timer = setInterval(() => {
      if (!wanted()) clearInterval(timer);
      else if (!document.hidden) this.#some();
    }, EVERY_MS);
  }

  #some(): void {
    const { calls } = this.world;
    const fresh = Math.min(calls.seen - this.#seen, calls.ended.length);
    this.#seen = calls.seen;
    for (const row of chosen(calls.ended, fresh)) this.trace(row.id).catch(() => undefined);
  }
}

/** Of the newest calls the failed ones and then the slowest, but one that is like any other. */
export function chosen(ended: Iterable<CallRow>, fresh: number): CallRow[] {
  const rows: CallRow[] = [];
  for (const row of ended) {
    if (rows.length >= fresh) break;
    rows.push(row);
  }
  const [any] = rows;
  if (any === undefined) return [];
  const worst = rows.slice(1).sort((a, b) => Number(hasFailed(b)) - Number(hasFailed(a)) || (b.ms ?? 0) - (a.ms ?? 0));
  return [any, ...worst.slice(0, EACH_TIME - 1)];
}
