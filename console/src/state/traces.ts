import { Ring } from "./ring.ts";
import type { Step, Trace } from "./views.ts";

/** How many traces are kept, and how many of them figures are made of. */
export const TRACES_MAX = 400;

/** Times of one try, in microseconds. */
export interface Try {
  target: string;
  attempt: number;
  given: number;
  /** Absent too where the first piece or the answer stood for it: an SDK spares the hub an envelope where work is quick. */
  accepted?: number;
  firstChunk?: number;
  answered?: number;
  outcome?: string;
}

/** The tries of a call, in the order in which they were given. */
export function triesOf(steps: Step[]): Try[] {
  const tries: Try[] = [];
  const latest = (target: string | undefined): Try | undefined =>
    tries.findLast((one) => one.target === target && one.answered === undefined);
  for (const { step, at_us, target, attempt, outcome } of steps) {
    if (step === "given" && target !== undefined) tries.push({ target, attempt: attempt ?? 1, given: at_us });
    const one = latest(target);
    if (one === undefined) continue;
    if (step === "accepted") one.accepted ??= at_us;
    else if (step === "first_chunk") {
      one.firstChunk ??= at_us;
      if (one.accepted === at_us) delete one.accepted;
    } else if (step === "answered") {
      if (one.accepted === at_us) delete one.accepted;
      one.answered = at_us;
      if (outcome !== undefined) one.outcome = outcome;
    } else if (step === "target_away") {
      one.answered = at_us;
      one.outcome = "target_away";
    }
  }
  return tries;
}

/** Traces of some calls: those that were looked at, and a sample of what goes by. */
export class Traces {
  readonly #newest = new Ring<Trace>(TRACES_MAX);
  readonly #byId = new Map<string, Trace>();

  put(trace: Trace): void {
    const known = this.#byId.has(trace.call_id);
    this.#byId.set(trace.call_id, trace);
    if (known) return;
    const forgotten = this.#newest.push(trace);
    if (forgotten !== undefined) this.#byId.delete(forgotten.call_id);
  }

  get(id: string): Trace | undefined {
    return this.#byId.get(id);
  }

  get size(): number {
    return this.#newest.length;
  }

  /** Who was passed over why, in the sampled calls. */
  figures(): { excluded: Map<string, number>; routed: number } {
    const excluded = new Map<string, number>();
    let routed = 0;
    for (const { steps } of this.#byId.values()) {
      for (const { candidates } of steps) {
        if (candidates === undefined) continue;
        routed += 1;
        for (const [why, count] of Object.entries(candidates.excluded)) excluded.set(why, (excluded.get(why) ?? 0) + count);
      }
    }
    return { excluded, routed };
  }
}
