import { CallError, connect, ConnectError, type Agent, type CallOptions } from "@agent-reach/client";
import { signal } from "@preact/signals";

import { touch } from "../state/frame.ts";
import type { HubEvent, Stats, Trace } from "../state/views.ts";
import { World } from "../state/world.ts";
import { pause } from "./pause.ts";
import { Sampler } from "./sampler.ts";
import { current, type Session } from "./session.ts";
import { windowOf } from "./window.ts";

/** How it stands between this page and the hub. */
export type Phase =
  | { is: "starting" }
  /** Nobody is logged in. */
  | { is: "login" }
  /** The first session is being sought. */
  | { is: "connecting"; why?: string }
  | { is: "live" }
  /** What is shown may be old; the connection mends itself. */
  | { is: "lost"; since: number; why: string }
  /** The connection stands, and nothing comes over it. */
  | { is: "silent"; since: number }
  /** It ended for good, and only a person can begin it anew. */
  | { is: "ended"; code: string; why: string };

/** How often figures are asked for, and how long an answer may take before the page says that none comes. */
const STATS_MS = 2000;
const SILENT_MS = 6000;
/** How long the first session is sought before it is asked whether somebody is logged in at all. */
const SEEK_MS = 6000;
/** Events that the hub may be ahead. A thousand come in a second. */
const WINDOW = 2048;
const WATCH_PAUSE_MS = 1000;
/** These waits end by themselves, soon. */
const NEVER = new AbortController().signal;

/** The page's one connection, and what is known through it. */
export class Link {
  readonly phase = signal<Phase>({ is: "starting" });
  readonly session = signal<Session | undefined>(undefined);
  /** The newest figures; none before the first ones. */
  readonly stats = signal<Stats | undefined>(undefined);
  /** Whether the state is whole: the watch has told all that is there. */
  readonly isWhole = signal(false);
  /** Why there are no events, where the hub refuses them. */
  readonly refused = signal<string | undefined>(undefined);
  readonly world = new World(touch);
  #agent: Agent | undefined;
  #life = 0;
  #heard = 0;
  #lostAt = 0;
  #why = "";
  readonly #sampler = new Sampler(this.world, (id) => this.trace(id));

  /** Asks whose session it is, and connects. A link that runs begins anew. */
  async start(): Promise<void> {
    this.#end();
    this.#life += 1;
    const life = this.#life;
    this.phase.value = { is: "starting" };
    while (life === this.#life) {
      const asked = await current();
      if (life !== this.#life) return;
      if (asked.is === "none") {
        this.#loggedOut();
        return;
      }
      if (asked.is === "failed") this.phase.value = { is: "connecting", why: asked.why };
      else {
        this.session.value = asked.value;
        if (this.phase.value.is === "starting") this.phase.value = { is: "connecting" };
        if (await this.#seek(windowOf(asked.value.agent_id), life)) return;
      }
      await pause(1000, NEVER);
    }
  }

  /** Lets go: somebody else logs in, or nobody. */
  stop(): void {
    this.#life += 1;
    this.#end();
    this.#loggedOut();
  }

  #loggedOut(): void {
    this.session.value = undefined;
    this.phase.value = { is: "login" };
  }

  #end(): void {
    void this.#agent?.close(0);
    this.#agent = undefined;
    this.isWhole.value = false;
  }

  async #seek(agentId: string, life: number): Promise<boolean> {
    const { protocol, hostname, port } = location;
    const isSecure = protocol === "https:";
    // The SDK's own port is that of agents, not that of pages.
    const url = `${isSecure ? "wss" : "ws"}://${hostname}:${port === "" ? (isSecure ? "443" : "80") : port}`;
    try {
      const log = (_: string, text: string): void => queueMicrotask(() => this.#looked(life, text));
      const options = { url, agentId, service: "agent-reach console", connectTimeoutMs: SEEK_MS, log };
      const agent = await connect({ ...options, reconnectMs: [500, 10_000] });
      if (life !== this.#life) {
        void agent.close(0);
        return true;
      }
      this.#agent = agent;
    } catch (error) {
      if (life !== this.#life) return true;
      if (!(error instanceof ConnectError)) throw error;
      if (error.kind !== "refused") return false;
      this.phase.value = { is: "ended", code: String(error.code ?? ""), why: error.message };
      return true;
    }
    this.#heard = Date.now();
    this.phase.value = { is: "live" };
    void this.#agent.closed().then((reason) => {
      if (life !== this.#life) return;
      this.phase.value = { is: "ended", code: reason.code ?? "", why: reason.message };
      // It may have ended with the session that it came with.
      void this.#stillIn(life);
    });
    void this.#watch(this.#agent, life);
    void this.#poll(this.#agent, life);
    this.#sampler.start(() => life === this.#life);
    return true;
  }

  /** The SDK had something to say: the connection may have come or gone. */
  #looked(life: number, text: string): void {
    if (life !== this.#life || this.#agent === undefined || this.#agent.isClosed) return;
    const { is } = this.phase.value;
    if (this.#agent.isConnected) {
      this.#heard = Date.now();
      if (is === "lost" || is === "silent") this.phase.value = { is: "live" };
    } else {
      if (is !== "lost") this.#lostAt = Date.now();
      this.#why = text.replace(/^not connected: /, "");
      this.phase.value = { is: "lost", since: this.#lostAt, why: this.#why };
      this.isWhole.value = false;
      void this.#stillIn(life);
    }
  }

  /** A connection that is not let in any more looks like one that is lost: browsers do not say which. */
  async #stillIn(life: number): Promise<void> {
    const asked = await current();
    if (life === this.#life && asked.is === "none") this.stop();
  }

  async #watch(agent: Agent, life: number): Promise<void> {
    const filter = { subjects: ["agents", "calls", "tasks"] };
    while (life === this.#life && !agent.isClosed) {
      try {
        const events = agent.stream<HubEvent>("hub.events.watch", filter, { window: WINDOW });
        for await (const event of events) {
          if (life !== this.#life) return;
          if (this.world.take(event, Date.now())) this.isWhole.value = true;
        }
      } catch (error) {
        if (error instanceof CallError && error.code === "unauthorized") this.refused.value = error.message;
        // Ended, or fallen behind: it begins anew with the state as it is then.
      }
      this.world.broken();
      this.isWhole.value = false;
      await pause(WATCH_PAUSE_MS, NEVER);
    }
  }

  async #poll(agent: Agent, life: number): Promise<void> {
    while (life === this.#life && !agent.isClosed) {
      void this.#askStats(agent, life);
      await pause(STATS_MS, NEVER);
      const quiet = Date.now() - this.#heard;
      // A page that was asleep has not been waiting.
      if (this.phase.value.is === "live" && quiet > SILENT_MS && !document.hidden)
        this.phase.value = { is: "silent", since: this.#heard };
    }
  }

  async #askStats(agent: Agent, life: number): Promise<void> {
    try {
      const stats = await agent.call<Stats>("hub.stats", {}, { budgetMs: SILENT_MS });
      if (life !== this.#life) return;
      this.#heard = Date.now();
      this.stats.value = stats;
      this.world.trend.push({ at: this.#heard, stats });
      touch("stats");
      if (this.phase.value.is === "silent") this.phase.value = { is: "live" };
    } catch {
      // Refused or lost: the phase says so.
    }
  }

  /** Asks the hub, or through it an agent. @throws CallError */
  async call<T>(capability: string, body: unknown, options?: CallOptions): Promise<T> {
    const agent = this.#agent;
    if (agent === undefined) throw new CallError("closed", "not connected");
    return await agent.call<T>(capability, body, options);
  }

  /** The connection, for what needs more than its answer. */
  get agent(): Agent | undefined {
    return this.#agent;
  }

  /** Each decision of one call, which is kept. @throws CallError when the hub has no trace of it (any more). */
  async trace(callId: string): Promise<Trace> {
    const { trace } = await this.call<{ trace: Trace }>("hub.traces.get", { call_id: callId });
    if (trace.ended) this.world.traces.put(trace);
    return trace;
  }
}

/** The link of this page. */
export const link = new Link();
/** Everything that it knows. */
export const { world } = link;
/** Whether who is logged in may change things. The hub decides; the page only spares the buttons that would fail. */
export const isOperator = (): boolean => link.session.value?.role === "operator";
