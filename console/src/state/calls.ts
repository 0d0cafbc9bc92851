import { Figures, FiguresByName } from "./figures.ts";
import { Ring } from "./ring.ts";
import { Seconds } from "./seconds.ts";
import type { CallView, RefusedView } from "./views.ts";

/** One call as the console holds it. */
export interface CallRow {
  readonly id: string;
  view: CallView;
  /** When it began, in milliseconds since the Unix epoch. */
  readonly began: number;
  /** When it ended. */
  ended?: number;
  /** How long it took, in milliseconds. */
  ms?: number;
  /** `completed` or an error code; absent while it is open. */
  outcome?: string;
}

/** How many ended calls are kept. */
export const ENDED_MAX = 2000;
/** Most open calls that are held. */
export const OPEN_MAX = 20_000;
/** Most capabilities and agents with figures of their own. */
const NAMES_MAX = 2000;
const AGENTS_MAX = 20_000;

/** Whether a call failed. */
export function hasFailed(row: CallRow): boolean {
  return row.outcome !== undefined && row.outcome !== "completed";
}

/** Calls that are open, the newest that ended, and figures of all that went by. */
export class Calls {
  readonly open = new Map<string, CallRow>();
  readonly ended = new Ring<CallRow>(ENDED_MAX);
  readonly seconds = new Seconds();
  readonly capabilities = new FiguresByName(NAMES_MAX);
  readonly agents = new FiguresByName(AGENTS_MAX);
  /** Ended calls that the page has seen. */
  seen = 0;
  /** Open calls that had no room. */
  leftOut = 0;
  /** Refused calls that the hub told nobody of, since they were too many. */
  untold = 0;
  readonly #endedById = new Map<string, CallRow>();
  #next: Map<string, CallRow> | undefined;

  /** A part of a snapshot. */
  part(views: CallView[], at: number): void {
    this.#next ??= new Map();
    for (const view of views) this.#hold(this.#next, view, at);
  }

  /** The snapshot is whole: what it does not name is no longer open. */
  whole(): void {
    this.open.clear();
    for (const [id, row] of this.#next ?? []) this.open.set(id, row);
    this.#next = undefined;
  }

  broken(): void {
    this.#next = undefined;
  }

  started(view: CallView, at: number): void {
    this.#hold(this.open, view, at);
    this.seconds.of(at).started += 1;
  }

  #hold(rows: Map<string, CallRow>, view: CallView, at: number): void {
    if (rows.size >= OPEN_MAX) {
      this.leftOut += 1;
      return;
    }
    rows.set(view.call_id, { id: view.call_id, view, began: at - view.age_ms });
  }

  finished(view: CallView, outcome: string, at: number): void {
    this.open.delete(view.call_id);
    const ok = outcome === "completed";
    const ms = view.age_ms;
    this.#keep({ id: view.call_id, view, began: at - ms, ended: at, ms, outcome }, at);
    this.seconds.of(at).times.add(ms * 1000);
    this.capabilities.of(view.capability, at).add(at, ms * 1000, ok);
    for (const target of view.targets) this.agents.of(target, at).add(at, ms * 1000, ok);
  }

  /**
   * A call that the hub refused: nobody worked on it, so it has no time and is nobody's failure. Its capability may be a
   * name that somebody made up.
   */
  refused(view: RefusedView, outcome: string, leftOut: number, at: number): void {
    const none = { mode: "", state: "refused", targets: [], age_ms: 0, budget_left_ms: 0, stream: false };
    this.#keep({ id: view.call_id, view: { ...none, ...view }, began: at, ended: at, ms: 0, outcome }, at);
    this.untold += leftOut;
  }

  /** A call is over. */
  #keep(row: CallRow, at: number): void {
    const forgotten = this.ended.push(row);
    if (forgotten !== undefined) this.#endedById.delete(forgotten.id);
    this.#endedById.set(row.id, row);
    this.seen += 1;
    const second = this.seconds.of(at);
    if (hasFailed(row)) second.failed += 1;
    else second.completed += 1;
  }

  /** A call that is open, or is still remembered. */
  get(id: string): CallRow | undefined {
    return this.open.get(id) ?? this.#endedById.get(id);
  }

  /** Figures of an agent's work, from the events seen. */
  figuresOf(agentId: string): Figures | undefined {
    return this.agents.get(agentId);
  }
}

/** What a list of calls is narrowed to. */
export interface CallFilter {
  /** Words that all have to be found in ids, names and outcome. */
  search: string;
  /** Which kind of calls. */
  which: "all" | "open" | "failed" | "slow";
}

/** Calls that take longer than this are slow, in milliseconds. */
export const SLOW_MS = 1000;

function takes(row: CallRow, words: string[], which: CallFilter["which"], now: number): boolean {
  if (which === "open" && row.outcome !== undefined) return false;
  if (which === "failed" && !hasFailed(row)) return false;
  if (which === "slow" && (row.ms ?? now - row.began) < SLOW_MS) return false;
  if (words.length === 0) return true;
  const { capability, caller, targets, request_id, mode } = row.view;
  const text = [row.id, capability, caller, request_id, mode, row.outcome ?? "open", ...targets].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** The calls that a filter takes: open ones first, then the newest that ended. */
export function filteredCalls(calls: Calls, { search, which }: CallFilter, now: number): CallRow[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found: CallRow[] = [];
  for (const row of calls.open.values()) if (takes(row, words, which, now)) found.push(row);
  found.reverse();
  for (const row of calls.ended) if (takes(row, words, which, now)) found.push(row);
  return found;
}

/** Failed calls first, then by the time that they took; in place. */
export function worstFirst(rows: CallRow[], now: number): CallRow[] {
  return rows.sort((a, b) => {
    const failed = Number(hasFailed(b)) - Number(hasFailed(a));
    if (failed !== 0) return failed;
    if (hasFailed(a)) return (b.ended ?? 0) - (a.ended ?? 0);
    return (b.ms ?? now - b.began) - (a.ms ?? now - a.began);
  });
}
