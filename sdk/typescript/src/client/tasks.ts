/** Durable tasks, from the side of who asked. */

import { CallError, type Attempt } from "../errors.js";
import type { CallEvent, CallKey, CallSpec, End, TaskEnd } from "../session/types.js";
import type { Agent } from "./agent.js";
import { typed, type CallStream, type Reply, type TypedEnd } from "./calls.js";
import type { CallSink, Driver } from "./driver.js";
import { Waiters } from "./waiters.js";

/** Where a task stands. */
export type TaskState = "QUEUED" | "RECEIVED" | "PROCESSING" | "SUCCEEDED" | "FAILED";

/** A task as the hub shows it. */
export interface TaskInfo {
  task_id: string;
  state: TaskState;
  capability: string;
  request_id: string;
  caller: string;
  attempt: number;
  target?: string;
  /** Milliseconds since it was submitted. */
  age_ms: number;
  /** Milliseconds since its last change. */
  unchanged_ms: number;
  budget_left_ms?: number;
  /** `completed` or an error code. */
  outcome?: string;
  /** Only of one task: its tries, and its end when it has one. */
  attempts?: Attempt[];
  result?: unknown;
  error?: { code: string; message: string; retryable: boolean; details?: unknown };
  execution_ms?: number;
  route?: string;
}

/** Which tasks to list. */
export interface TaskFilter {
  state?: TaskState;
  capability?: string;
}

/** One thing that happened to a task: where it stands, first as it is now; or what its handler said of its progress. */
export type TaskEvent = { is: "state"; task: TaskInfo } | { is: "progress"; progress: unknown };

function isOver(state: TaskState): boolean {
  return state === "SUCCEEDED" || state === "FAILED";
}

/** A chunk of `hub.tasks.watch`. */
interface Told {
  event: string;
  tasks?: TaskInfo[];
  task?: TaskInfo;
  task_id?: string;
  progress?: unknown;
}

/**
 * A task that the hub has stored. It goes on without the handle. Its result comes over lost connections and restarts of
 * the hub, and in another life of the program to {@link Agent.task} with the same id.
 */
export class TaskHandle<T> implements CallSink {
  /** The task's id, known once it is stored. */
  id = "";
  #key: CallKey | undefined;
  #end: End | undefined;
  #looked: Promise<void> | undefined;
  readonly #waiters = new Waiters();

  /** @internal */
  readonly #agent: Agent;
  readonly #driver: Driver;

  constructor(agent: Agent, driver: Driver) {
    this.#agent = agent;
    this.#driver = driver;
  }

  /** @internal */
  async submit(spec: CallSpec, signal: AbortSignal | undefined): Promise<this> {
    if (signal?.aborted === true) throw new CallError("cancelled", "aborted before it was sent", { accepted: "no" });
    this.#key = this.#driver.register(this);
    const key = this.#key;
    const abort = (): void => this.#driver.handle({ is: "cancel", key });
    signal?.addEventListener("abort", abort, { once: true });
    this.#driver.handle({ is: "open", key, spec });
    const end = await this.#waiters.until(() => (this.id === "" ? this.#end : "stored"));
    signal?.removeEventListener("abort", abort);
    if (end === "stored") return this;
    if ("error" in end) throw end.error;
    this.id = end.reply.taskId ?? "";
    return this;
  }

  /** @internal */
  known(id: string): this {
    this.id = id;
    return this;
  }

  /** @internal */
  onEvent(event: CallEvent): void {
    if (event.is === "accepted") this.id = event.acceptance.taskId ?? this.id;
    else if (event.is === "ended") this.#end ??= event.end;
    this.#waiters.wake();
  }

  /** Waits for the task's result. It can be waited for again. @throws CallError */
  async result(): Promise<T> {
    return (await this.reply()).body;
  }

  /** The same, with how it got there. @throws CallError */
  async reply(): Promise<Reply<T>> {
    if (this.#key === undefined && this.#end === undefined) {
      // Before the hub is asked, lest the result come between the two.
      this.#looked ??= this.#claimAndLook();
      await this.#looked;
    }
    const end = typed<T>(await this.#waiters.until(() => this.#end));
    if ("error" in end) throw end.error;
    return end.reply;
  }

  /** For a handle that was made from an id: waits for the result, and asks whether it is there already. */
  async #claimAndLook(): Promise<void> {
    const key = this.#driver.register(this);
    this.#driver.handle({ is: "claim", key, taskId: this.id });
    try {
      const end = this.#end === undefined ? await this.#look() : undefined;
      if (end === undefined) return;
      this.#driver.forget(key);
      this.#driver.handle({ is: "forget", key });
      this.#driver.handle({ is: "received", taskId: this.id });
      this.onEvent({ is: "ended", end });
    } catch (error) {
      this.#looked = undefined;
      throw error;
    }
  }

  /** How the task ended, as the hub tells; `undefined`: it has not, and its end comes by itself. */
  async #look(): Promise<End | undefined> {
    let info: TaskInfo;
    try {
      info = await this.info();
    } catch (error) {
      // Its result has no room beside all else that this shows of it; it has in a message of its own.
      if (error instanceof CallError && error.code === "payload_too_large") return undefined;
      throw error;
    }
    if (!isOver(info.state)) {
      if (info.caller === this.#agent.agentId) return undefined;
      // Another agent of the same identity submitted it: the result goes there.
      for await (const event of this.watch()) if (event.is === "state" && isOver(event.task.state)) break;
      info = await this.info();
    }
    return this.#agent.endOf(info);
  }

  /** Where it stands now, with its tries and its end. */
  async info(): Promise<TaskInfo> {
    return this.#agent.call<TaskInfo>("hub.tasks.get", { task_id: this.id });
  }

  /** Cancels it in the hub and at its provider. True: that ended it; false: it had ended before. */
  async cancel(): Promise<boolean> {
    const answer = await this.#agent.call<{ cancelled: boolean }>("hub.tasks.cancel", { task_id: this.id });
    return answer.cancelled;
  }

  /**
   * The state as it is, each change, and each word of progress, until the task ends. After a lost connection it begins
   * anew with the state as it is then.
   */
  async *watch(): AsyncGenerator<TaskEvent, void> {
    const stream: CallStream<Told, unknown> = this.#agent.stream<Told>("hub.tasks.watch", { task_id: this.id });
    for await (const told of stream) {
      for (const task of [...(told.tasks ?? []), ...(told.task === undefined ? [] : [told.task])]) {
        if (task.task_id !== this.id) continue;
        yield { is: "state", task };
        if (isOver(task.state)) return;
      }
      if (told.event === "task.progress" && told.task_id === this.id) yield { is: "progress", progress: told.progress };
    }
    throw new CallError("interrupted", "the watch ended before the task");
  }
}

/** A task's result that no handle waited for. */
export interface TaskResult {
  taskId: string;
  /** How it ended. */
  end: TypedEnd<unknown>;
}

/** Results of tasks that no handle waits for: `for await` gives each once. */
export class Inbox implements AsyncIterableIterator<TaskResult> {
  readonly #held: TaskEnd[] = [];
  #waiters: ((result: IteratorResult<TaskResult, undefined>) => void)[] = [];
  #isClosed = false;
  readonly #driver: () => Driver;

  /** @internal */
  constructor(driver: () => Driver) {
    this.#driver = driver;
  }

  /** @internal */
  arrived(end: TaskEnd): void {
    const waiter = this.#waiters.shift();
    if (waiter === undefined) this.#held.push(end);
    else waiter({ done: false, value: this.#give(end) });
  }

  /** @internal Takes out the result of a task for a handle. */
  take(taskId: string): TaskEnd | undefined {
    const at = this.#held.findIndex((end) => end.taskId === taskId);
    return at < 0 ? undefined : this.#held.splice(at, 1)[0];
  }

  /** @internal */
  close(): void {
    this.#isClosed = true;
    for (const waiter of this.#waiters.splice(0)) waiter({ done: true, value: undefined });
  }

  #give({ taskId, end }: TaskEnd): TaskResult {
    this.#driver().handle({ is: "received", taskId });
    return { taskId, end: typed(end) };
  }

  /** The next result; done when the agent is closed. */
  next(): Promise<IteratorResult<TaskResult, undefined>> {
    const first = this.#held.shift();
    if (first !== undefined) return Promise.resolve({ done: false, value: this.#give(first) });
    if (this.#isClosed) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
