import type { TaskInfo } from "./views.ts";

/** One task as the console holds it. */
export interface TaskRow {
  readonly id: string;
  view: TaskInfo;
  /** When it was told, in milliseconds since the Unix epoch. */
  at: number;
  /** What its agent last said of its progress. */
  progress?: unknown;
}

/** Most tasks that are held. */
export const TASKS_MAX = 5000;

/** Whether a task has ended. */
export function isOver(state: string): boolean {
  return state === "SUCCEEDED" || state === "FAILED";
}

/** Open tasks, and those that ended while the page was open. */
export class Tasks {
  readonly #rows = new Map<string, TaskRow>();
  #next: TaskInfo[] | undefined;
  /** Tasks that had no room. */
  leftOut = 0;

  part(views: TaskInfo[]): void {
    (this.#next ??= []).push(...views);
  }

  /** The snapshot is whole. One that was open and is not named has ended unseen: it is forgotten, not guessed at. */
  whole(at: number): void {
    const named = new Set(this.#next?.map((view) => view.task_id));
    for (const [id, row] of this.#rows) if (!isOver(row.view.state) && !named.has(id)) this.#rows.delete(id);
    for (const view of this.#next ?? []) this.put(view, at);
    this.#next = undefined;
  }

  broken(): void {
    this.#next = undefined;
  }

  put(view: TaskInfo, at: number): void {
    const known = this.#rows.get(view.task_id);
    if (known !== undefined) {
      known.view = view;
      known.at = at;
      return;
    }
    if (this.#rows.size >= TASKS_MAX && !this.#forgetOne()) {
      this.leftOut += 1;
      return;
    }
    this.#rows.set(view.task_id, { id: view.task_id, view, at });
  }

  #forgetOne(): boolean {
    for (const [id, row] of this.#rows) if (isOver(row.view.state)) return this.#rows.delete(id);
    return false;
  }

  progress(id: string, progress: unknown): void {
    const row = this.#rows.get(id);
    if (row !== undefined) row.progress = progress;
  }

  get(id: string): TaskRow | undefined {
    return this.#rows.get(id);
  }

  get size(): number {
    return this.#rows.size;
  }

  rows(): IterableIterator<TaskRow> {
    return this.#rows.values();
  }
}
