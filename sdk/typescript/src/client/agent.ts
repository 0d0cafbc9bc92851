/** What programs use: one agent, with any number of calls and handlers over one connection. */

import { encode, utf8Length } from "../codec/index.js";
import { CallError, ConnectError, type CloseReason } from "../errors.js";
import { CREDIT_DEFAULT, MAX_CONCURRENCY_DEFAULT, MESSAGE_BYTES_DEFAULT } from "../limits.js";
import type { Status } from "../frames/index.js";
import { replyOf } from "../session/asked.js";
import { Backoff } from "../session/backoff.js";
import { Session } from "../session/index.js";
import { Registration } from "../session/registration.js";
import {
  pairs,
  type Acceptance,
  type CallSpec,
  type End,
  type Invocation,
  type RunKey,
  type Served,
} from "../session/types.js";
import { addressOf, type Environment } from "../transport/index.js";
import { CallStream, PendingCall } from "./calls.js";
import { pages, type AgentFilter, type AgentInfo, type CapabilityInfo } from "./discover.js";
import { Driver, type Wanted } from "./driver.js";
import { PendingFanOut } from "./fan-out.js";
import { Health, type HealthReport, type LoadReport } from "./health.js";
import { specOf, type CallAllOptions, type CallOptions, type StreamOptions, type TaskOptions } from "./options.js";
import { toPayload } from "./payload.js";
import { nameOf, offerOf, Run, type CapabilityOptions, type Context, type Handled, type Handler } from "./provide.js";
import type { JsonSchema, ZodLike } from "./schema.js";
import { packServed, unpackServed, type DedupeStore } from "./store.js";
import { Inbox, TaskHandle, type TaskFilter, type TaskInfo } from "./tasks.js";

/** How an agent is made. Times are in milliseconds. */
export interface AgentOptions {
  /** Where the hub is: `wss://HOST[:7443]`, or `ws://` for one on this machine. */
  url: string;
  /** Who this agent is: 1 to 128 bytes, allowed to its certificate by the hub's policy. */
  agentId: string;
  /** For people. */
  service?: string;
  /** Of the service, for people. */
  version?: string;
  labels?: Record<string, string>;
  /** Most handlers at once; further calls are refused with `overloaded`. Default 50. */
  maxConcurrency?: number;
  /** Patterns of what it means to call. Default: all that policy grants. */
  calls?: string[];
  /** How long `connect` seeks the first session. Default 30,000; later ones are sought for ever. */
  connectTimeoutMs?: number;
  /** Ceilings of the first wait before a dial and of every one. Default `[1000, 60000]`; waits are at random below. */
  reconnectMs?: [number, number];
  /** What handlers get to end when the agent closes. Default 10,000. */
  drainMs?: number;
  /** What a cancelled handler gets before its call is answered without it. Default 5,000. */
  cancelGraceMs?: number;
  /** Where ends of served calls are kept besides the SDK's own memory (10 min, 64 MiB). */
  dedupe?: DedupeStore;
  /** Asked before heartbeats, each half of 5 s: what the agent has to say of its health and load. */
  health?: () => HealthReport | Promise<HealthReport>;
  /** Gets what the SDK has to say. Default: warnings to `console.warn`, nothing else. */
  log?: (level: "info" | "warn", text: string) => void;
}

/** Who keeps something of the hub's in memory. */
interface Follower {
  stale(): void;
  close(): void;
}

interface Offered {
  handler: Handler;
  options: CapabilityOptions;
}

/** One agent's life. Made by `connect`. */
export class Agent {
  readonly agentId: string;
  /** Random id of this life. */
  readonly instance: string;
  /** @internal */
  readonly environment: Environment;
  readonly #driver: Driver;
  readonly #offered = new Map<string, Offered>();
  readonly #runs = new Map<RunKey, Run>();
  readonly #followers = new Set<Follower>();
  readonly #box: Inbox;
  readonly #options: AgentOptions;
  readonly #health: Health;
  #maxMessage = MESSAGE_BYTES_DEFAULT;
  #lastReason = "";
  #reason: CloseReason | undefined;
  readonly #whenClosed: Promise<CloseReason>;
  #onClosed!: (reason: CloseReason) => void;
  #onReady: (() => void) | undefined;

  /** @throws ConnectError `config` for options that cannot be. */
  constructor(options: AgentOptions, environment: Environment) {
    const bytes = utf8Length(options.agentId);
    if (bytes === 0 || bytes > 128) throw new ConnectError("config", `an agentId has 1 to 128 bytes, not ${bytes}`);
    this.#options = options;
    this.environment = environment;
    this.agentId = options.agentId;
    this.instance = crypto.randomUUID();
    this.#whenClosed = new Promise((resolve) => (this.#onClosed = resolve));
    const { service, version, calls, maxConcurrency = MAX_CONCURRENCY_DEFAULT } = options;
    const more = { service, version, labels: pairs(options.labels), calls };
    const registration = new Registration(options.agentId, this.instance, maxConcurrency, more);
    const session = new Session({
      registration,
      backoff: new Backoff(...(options.reconnectMs ?? [])),
      random: () => environment.random(),
      cancelGrace: options.cancelGraceMs ?? 5000,
      hasStore: options.dedupe !== undefined,
      canPing: environment.canPing,
    });
    this.#driver = new Driver(session, addressOf(options.url), environment, (effect) => this.#perform(effect));
    this.#box = new Inbox(() => this.#driver);
    this.#health = new Health(environment, options.health, (load) => this.#driver.handle({ is: "setLoad", load }));
    try {
      registration.hello({ running: 0, waiting: 0 });
    } catch (error) {
      throw new ConnectError("config", (error as Error).message);
    }
  }

  /** Does what the session wants of the program's side. */
  #perform(effect: Wanted): void {
    switch (effect.do) {
      case "ready":
        this.#log("info", `session ${effect.session} is open`);
        this.#maxMessage = effect.maxMessage;
        return this.#onReady?.();
      case "lost":
        this.#log("info", `not connected: ${effect.reason}`);
        this.#lastReason = effect.reason;
        for (const follower of this.#followers) follower.stale();
        return;
      case "run":
        return this.#run(effect.call);
      case "grant":
        return this.#runs.get(effect.run)?.grant(effect.n);
      case "cancelRun":
      case "abortRun":
        return this.#runs.get(effect.run)?.cancel();
      case "arrived":
        return this.#box.arrived(effect.end);
      case "hand":
        return this.#hand(effect.key, effect.taskId);
      case "recall":
        return void this.#recall(effect.run, effect.intent);
      case "keep":
        return void this.#keep(effect.intent, effect.served);
      case "warn":
        return this.#log("warn", effect.text);
      case "stopped":
        return this.#stopped(effect.reason);
    }
  }

  #log(level: "info" | "warn", text: string): void {
    if (this.#options.log !== undefined) this.#options.log(level, text);
    else if (level === "warn") console.warn(`agent-reach: ${text}`);
  }

  /** @internal The first session. */
  async connect(): Promise<this> {
    const timeout = this.#options.connectTimeoutMs ?? 30_000;
    const cancel = this.environment.timer(timeout, () => this.#driver.handle({ is: "close", within: 0 }));
    this.#driver.start();
    const ready = new Promise<undefined>((resolve) => {
      this.#onReady = () => resolve(undefined);
      if (this.#driver.isReady) resolve(undefined);
    });
    const reason = await Promise.race([ready, this.#whenClosed]);
    cancel();
    this.#onReady = undefined;
    if (reason === undefined) {
      this.#health.start();
      return this;
    }
    if (reason.kind === "goodbye") throw new ConnectError("refused", reason.message, reason.code);
    if (reason.kind === "connect") throw reason.error ?? new ConnectError("config", reason.message);
    throw new ConnectError("timeout", `no session within ${timeout} ms; last failure: ${this.#lastReason || "none"}`);
  }

  #stopped(reason: CloseReason): void {
    this.#reason = reason;
    for (const run of this.#runs.values()) run.cancel();
    this.#runs.clear();
    for (const follower of this.#followers) follower.close();
    this.#box.close();
    this.#health.stop();
    this.#driver.end();
    this.#onClosed(reason);
  }

  /**
   * Offers a capability. The handler's input type is that of a Zod `input`, else what the program says it is. An offer of
   * the same name takes the place of the earlier one.
   *
   * @throws ConnectError `config` for a name outside the grammar, EncodeError for a schema that cannot be written.
   */
  provide<I, O = unknown>(
    name: string,
    handler: (ctx: Context<I>) => Handled<O>,
    options: Omit<CapabilityOptions, "input"> & { input: ZodLike<I> },
  ): this;
  provide<I = unknown, O = unknown>(
    name: string,
    handler: (ctx: Context<I>) => Handled<O>,
    options?: Omit<CapabilityOptions, "input"> & { input?: JsonSchema },
  ): this;
  provide(name: string, handler: (ctx: never) => unknown, options: CapabilityOptions = {}): this {
    const offer = offerOf(name, options);
    // What cannot be written must not fail in the middle of a session.
    new Registration("x", "x", 1).update({ running: 0, waiting: 0 }, { add: [offer.header] });
    this.#offered.set(offer.header.name, { handler: handler as Handler, options });
    this.#driver.handle({ is: "add", offer });
    return this;
  }

  /**
   * Resolves when the hub has taken what was said before: capabilities, status and load. It answers nothing to these, so
   * a small call is made behind them; its failure is an answer too.
   */
  async sync(): Promise<void> {
    await this.call("hub.agents.get", { agent_id: this.agentId }).catch((error: unknown) => {
      if (error instanceof CallError && error.code === "closed") throw error;
    });
  }

  /** Takes a capability back. Its handlers that run go on. */
  withdraw(name: string): void {
    this.#offered.delete(nameOf(name));
    this.#driver.handle({ is: "remove", name: nameOf(name) });
  }

  #run(call: Invocation): void {
    const offered = this.#offered.get(call.header.capability);
    const run = new Run(
      this,
      call,
      (input) => this.#driver.handle(input),
      () => this.#maxMessage,
    );
    this.#runs.set(call.run, run);
    const finish = (outcome: Parameters<Parameters<Run["start"]>[2]>[0]): void => {
      this.#runs.delete(call.run);
      this.#driver.handle({ is: "finished", run: call.run, outcome });
    };
    // Withdrawn while the call waited for its turn.
    if (offered === undefined)
      return finish({ failure: { code: "unsupported", message: "withdrawn", retryable: false } });
    run.start(offered.handler, offered.options, finish);
  }

  #hand(key: number, taskId: string): void {
    const end = this.#box.take(taskId);
    if (end !== undefined) this.#driver.give(key, end);
  }

  async #recall(run: RunKey, intent: string): Promise<void> {
    let served: Served | undefined;
    try {
      const bytes = await this.#options.dedupe?.get(intent);
      served = bytes === undefined ? undefined : unpackServed(bytes);
    } catch (error) {
      this.#log("warn", `the dedupe store failed: ${(error as Error).message}`);
    }
    this.#driver.handle({ is: "recalled", run, served });
  }

  async #keep(intent: string, served: Served): Promise<void> {
    try {
      await this.#options.dedupe?.set(intent, packServed(served));
    } catch (error) {
      this.#log("warn", `the dedupe store failed: ${(error as Error).message}`);
    }
  }

  #spec(
    capability: string,
    body: unknown,
    options?: CallOptions & TaskOptions & CallAllOptions,
    more?: Partial<CallSpec["header"]>,
    window?: number,
  ): CallSpec {
    try {
      return specOf(capability, toPayload(body), options, more, window);
    } catch (error) {
      if (error instanceof CallError) throw error;
      throw new CallError("invalid_request", (error as Error).message, { accepted: "no" });
    }
  }

  /**
   * Calls a capability. `await` gives the result; the handle can also wait for phase one alone, tell how the result got
   * there, and cancel.
   *
   * @throws CallError `invalid_request` at once for a body or options that cannot be sent; every other failure comes with
   * the result.
   */
  call<T = unknown>(capability: string, body?: unknown, options?: CallOptions): PendingCall<T> {
    return new PendingCall<T>(this.#driver, this.#spec(capability, body, options), options?.signal);
  }

  /** Calls a capability whose result comes in pieces. */
  stream<C = unknown, R = unknown>(capability: string, body?: unknown, options?: StreamOptions): CallStream<C, R> {
    const window = options?.window ?? CREDIT_DEFAULT;
    return new CallStream<C, R>(
      this.#driver,
      this.#spec(capability, body, options, undefined, window),
      window,
      options?.signal,
    );
  }

  /** Calls all agents that have a capability, or several. */
  callAll<T = unknown, C = unknown>(capability: string, body?: unknown, options?: CallAllOptions): PendingFanOut<T, C> {
    // Said also with `agents`: a call to one named agent would be an ordinary one else, whose answer has no parts.
    const select = options?.select ?? "all";
    const spec = this.#spec(capability, body, options, { select }, options?.window);
    return new PendingFanOut<T, C>(this.#driver, spec, options?.window, options?.signal);
  }

  /** Calls a capability, and waits for phase one alone: somebody has it. */
  async notify(capability: string, body?: unknown, options?: CallOptions): Promise<Acceptance | undefined> {
    const pending = new PendingCall(
      this.#driver,
      this.#spec(capability, body, options, { mode: "notify" }),
      options?.signal,
    );
    await pending;
    return pending.accepted();
  }

  /** Submits a task. Resolves when the hub has stored it. @throws CallError */
  async submit<T = unknown>(capability: string, body?: unknown, options?: TaskOptions): Promise<TaskHandle<T>> {
    const window = options?.progress === false ? undefined : CREDIT_DEFAULT;
    const spec = this.#spec(capability, body, options, { mode: "task" }, window);
    return new TaskHandle<T>(this, this.#driver).submit(spec, options?.signal);
  }

  /** A handle on a task that was submitted before. */
  task<T = unknown>(taskId: string): TaskHandle<T> {
    return new TaskHandle<T>(this, this.#driver).known(taskId);
  }

  /** This identity's tasks, the newest first, all pages. */
  tasks(filter: TaskFilter = {}): Promise<TaskInfo[]> {
    return pages<TaskInfo>(this, "hub.tasks.list", "tasks", filter, (task) => task.task_id, "before");
  }

  /** Results of tasks that no handle waits for. */
  get inbox(): Inbox {
    return this.#box;
  }

  /** @internal The end of a task as `hub.tasks.get` shows it. */
  endOf(info: TaskInfo): End {
    const { target, request_id: requestId, attempts = [] } = info;
    if (info.state === "SUCCEEDED") {
      const reply = replyOf({ ...info, status: "completed", error: undefined }, encode(info.result ?? null), requestId);
      return { reply, summary: undefined };
    }
    const { code, message, retryable, details } = info.error ?? {
      code: info.outcome ?? "internal",
      message: "",
      retryable: false,
    };
    return { error: new CallError(code, message, { retryable, details, requestId, target, attempts }) };
  }

  /** The agents that this one may see, all pages. */
  agents(filter: AgentFilter = {}): Promise<AgentInfo[]> {
    return pages<AgentInfo>(this, "hub.agents.list", "agents", filter, (agent) => agent.agent_id, "after");
  }

  /** The dictionary of capabilities, all pages. */
  capabilities(): Promise<CapabilityInfo[]> {
    return pages<CapabilityInfo>(this, "hub.capabilities.list", "capabilities", {}, (one) => one.name, "after");
  }

  /** @internal Tells a follower when the connection is lost, until the agent ends. */
  follow(follower: Follower): void {
    this.#followers.add(follower);
  }

  /** @internal */
  unfollow(follower: Follower): void {
    this.#followers.delete(follower);
  }

  /** Says `ready`, `degraded` or `draining`, now and in each later session. */
  setStatus(status: Status): void {
    this.#driver.handle({ is: "setStatus", status });
  }

  /** Says more of the load than the SDK counts itself, now and with each heartbeat. */
  setLoad(load: LoadReport): void {
    this.#health.set(load);
  }

  /** Whether a session is open at present. Calls wait while there is none. */
  get isConnected(): boolean {
    return this.#driver.isReady;
  }

  /** Whether the agent has ended. */
  get isClosed(): boolean {
    return this.#reason !== undefined;
  }

  /** Resolves when the agent has ended, with why. */
  closed(): Promise<CloseReason> {
    return this.#whenClosed;
  }

  /** Takes nothing new, lets handlers end within `withinMs` (default `drainMs`), says GOODBYE. Can be called again. */
  close(withinMs = this.#options.drainMs ?? 10_000): Promise<CloseReason> {
    this.#driver.handle({ is: "close", within: withinMs });
    return this.#whenClosed;
  }

  /** Serves until the agent ends. SIGTERM and SIGINT close it; a second one ends it at once. */
  async serve(): Promise<CloseReason> {
    let signals = 0;
    const end = this.environment.onSignal?.(() => {
      signals += 1;
      void this.close(signals > 1 ? 0 : undefined);
    });
    try {
      return await this.#whenClosed;
    } finally {
      end?.();
    }
  }
}
