import { Agents } from "./agents.ts";
import { Calls } from "./calls.ts";
import { Ring } from "./ring.ts";
import { Tasks } from "./tasks.ts";
import { Traces } from "./traces.ts";
import type { HubEvent, Stats } from "./views.ts";

/** What changed, so that who shows it looks again. */
export type Topic = "agents" | "calls" | "tasks" | "stats";

/** Sets of figures that are kept: ten minutes. */
const TREND_MAX = 300;

/**
 * Everything that the hub has told, outside of every component: events change it at once, however many come; what shows
 * it looks at most once a frame.
 */
export class World {
  readonly agents = new Agents();
  readonly calls = new Calls();
  readonly tasks = new Tasks();
  readonly traces = new Traces();
  /** The hub's figures, one set each two seconds. */
  readonly trend = new Ring<{ at: number; stats: Stats }>(TREND_MAX);
  readonly #touch: (topic: Topic) => void;

  constructor(touch: (topic: Topic) => void) {
    this.#touch = touch;
  }

  /** One chunk of `hub.events.watch`. Gives true when the state is whole from now on. */
  take(event: HubEvent, at: number): boolean {
    if (event.event === "snapshot") return this.#snapshot(event, at);
    const { agent, call, task } = event;
    if (call !== undefined) {
      if (event.event === "call.refused") this.calls.refused(call, event.outcome ?? "", event.left_out ?? 0, at);
      else if (!("state" in call)) return false;
      else if (event.event === "call.ended") this.calls.finished(call, event.outcome ?? "completed", at);
      else this.calls.started(call, at);
      this.#touch("calls");
    } else if (agent !== undefined) {
      this.agents.put(agent, at);
      this.#touch("agents");
    } else if (event.event === "agent.disconnected" && event.agent_id !== undefined) {
      this.agents.remove(event.agent_id);
      this.#touch("agents");
    } else if (task !== undefined) {
      this.tasks.put(task, at);
      this.#touch("tasks");
    } else if (event.event === "task.progress" && event.task_id !== undefined) {
      this.tasks.progress(event.task_id, event.progress);
      this.#touch("tasks");
    }
    return false;
  }

  #snapshot(event: HubEvent, at: number): boolean {
    this.agents.part(event.agents ?? [], at);
    this.calls.part(event.calls ?? [], at);
    this.tasks.part(event.tasks ?? []);
    if (event.more === true) return false;
    this.agents.whole();
    this.calls.whole();
    this.tasks.whole(at);
    for (const topic of ["agents", "calls", "tasks"] as const) this.#touch(topic);
    return true;
  }

  /** The watch ended: half a snapshot is none. */
  broken(): void {
    this.agents.broken();
    this.calls.broken();
    this.tasks.broken();
  }
}
