import type { AgentView } from "./views.ts";

/** One agent as the console holds it. */
export interface AgentRow {
  readonly id: string;
  view: AgentView;
  /** When it was told, in milliseconds since the Unix epoch: ages in the view count from there. */
  at: number;
  /** What a search looks into, in lower case. */
  text: string;
}

/** Most agents that are held; the hub's own lists go on behind it. */
export const AGENTS_MAX = 20_000;

function textOf(view: AgentView): string {
  const labels = Object.entries(view.labels).map(([key, value]) => `${key}=${value}`);
  const words = [view.agent_id, view.identity, view.service ?? "", view.version ?? "", ...labels, ...view.capabilities];
  return words.join("\n").toLowerCase();
}

const isSame = (a: string[], b: string[]): boolean => a.length === b.length && a.every((name, at) => name === b[at]);

/** Everybody who is connected, or may come back. */
export class Agents {
  #rows = new Map<string, AgentRow>();
  #next: Map<string, AgentRow> | undefined;
  /** Counts every change of who is there, so that what depends on it alone is made anew only then. */
  membership = 0;
  /** Agents that had no room. */
  leftOut = 0;

  /** A part of a snapshot; it holds from the last part on. */
  part(views: AgentView[], at: number): void {
    this.#next ??= new Map();
    for (const view of views) this.#put(this.#next, view, at);
  }

  /** The snapshot is whole. */
  whole(): void {
    this.#rows = this.#next ?? new Map<string, AgentRow>();
    this.#next = undefined;
    this.membership += 1;
  }

  /** A snapshot that broke off is forgotten. */
  broken(): void {
    this.#next = undefined;
  }

  /** An agent came, or changed. */
  put(view: AgentView, at: number): void {
    if (!this.#rows.has(view.agent_id)) this.membership += 1;
    this.#put(this.#rows, view, at);
  }

  /** Newer figures of agents that are known: nobody comes by this, so that who has just left does not come back. */
  refresh(views: AgentView[], at: number): void {
    for (const view of views) if (this.#rows.has(view.agent_id)) this.#put(this.#rows, view, at);
  }

  /** An agent left. */
  remove(id: string): void {
    if (this.#rows.delete(id)) this.membership += 1;
  }

  #put(rows: Map<string, AgentRow>, view: AgentView, at: number): void {
    const known = rows.get(view.agent_id);
    if (known !== undefined) {
      if (known.view.instance !== view.instance || !isSame(known.view.capabilities, view.capabilities)) known.text = textOf(view);
      known.view = view;
      known.at = at;
      return;
    }
    if (rows.size >= AGENTS_MAX) {
      this.leftOut += 1;
      return;
    }
    rows.set(view.agent_id, { id: view.agent_id, view, at, text: textOf(view) });
  }

  get(id: string): AgentRow | undefined {
    return this.#rows.get(id);
  }

  get size(): number {
    return this.#rows.size;
  }

  rows(): IterableIterator<AgentRow> {
    return this.#rows.values();
  }
}

/** What a list of agents is narrowed to. */
export interface AgentFilter {
  /** Words that all have to be found. */
  search: string;
  /** A status, or "" for any. */
  status: string;
}

/** The agents that a filter takes. */
export function filtered(agents: Iterable<AgentRow>, { search, status }: AgentFilter): AgentRow[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found: AgentRow[] = [];
  for (const row of agents) {
    if (status !== "" && row.view.status !== status) continue;
    if (words.every((word) => row.text.includes(word))) found.push(row);
  }
  return found;
}
