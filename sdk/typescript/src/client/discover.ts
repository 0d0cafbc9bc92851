/** Who is there and what they can do, as the hub tells it. */

import type { Agent } from "./agent.js";

/** One agent that the hub knows. */
export interface AgentInfo {
  agent_id: string;
  /** Who its certificate proves. */
  identity: string;
  /** This life of its process. */
  instance: string;
  /** `ready`, `degraded`, `draining`, `suspect`, or `away` while its return is waited for. */
  status: string;
  service?: string;
  version?: string;
  sdk?: string;
  labels: Record<string, string>;
  /** Names of what it offers. */
  capabilities: string[];
  /** Calls that the hub counts as its own. */
  in_flight: number;
  max_concurrency: number;
  connected_ms: number;
  /** What it reports of its load. */
  load: {
    in_flight?: number;
    queued?: number;
    cpu?: number;
    memory?: number;
    health?: number;
    levels?: Record<string, number>;
  };
}

/** Which agents to list. */
export interface AgentFilter {
  capability?: string;
  status?: string;
  labels?: Record<string, string>;
}

/** One agent's offer of a capability. */
export interface OfferInfo {
  agent_id: string;
  status: string;
  /** The agent's own name of it, where the dictionary's is an alias. */
  name?: string;
  version?: string;
  description?: string;
  timeout_ms?: number;
  qps_limit?: number;
  idempotent?: boolean;
  labels?: Record<string, string>;
  aliases?: string[];
  input_schema?: unknown;
  output_schema?: unknown;
}

/** One name of the dictionary, with everybody who offers it. */
export interface CapabilityInfo {
  name: string;
  agents: OfferInfo[];
  policy_aliases?: string[];
}

/** All pages of a list of the hub. */
export async function pages<T>(
  agent: Agent,
  capability: string,
  key: string,
  filter: object,
  nameOf: (item: T) => string,
  cursor: string,
): Promise<T[]> {
  const all: T[] = [];
  let after: string | undefined;
  for (;;) {
    const body = after === undefined ? filter : { ...filter, [cursor]: after };
    const page = await agent.call<Record<string, unknown>>(capability, body);
    all.push(...((page[key] as T[] | undefined) ?? []));
    const last = all.at(-1);
    const name = last === undefined ? undefined : nameOf(last);
    // A hub that says more and gives nothing new would keep us here for ever.
    if (page["more"] !== true || name === undefined || name === after) return all;
    after = name;
  }
}

/** A chunk of `hub.events.watch` about agents. */
interface Told {
  event: string;
  agents?: AgentInfo[];
  agent?: AgentInfo;
  agent_id?: string;
  more?: boolean;
}

/** First and longest pause before a watch that ended is begun anew, in milliseconds. */
const PAUSE = 500;
const PAUSE_MOST = 30_000;

/**
 * The agents that an agent may see, in memory and kept fresh by `hub.events.watch`: the state now, then each change, and
 * anew after each reconnect. Close it when it is no longer needed; the agent's end does too.
 */
export class Directory {
  #agents = new Map<string, AgentInfo>();
  #next: Map<string, AgentInfo> | undefined;
  #fresh = false;
  readonly #ended = new AbortController();
  readonly #listeners = new Set<() => void>();

  /** @internal */
  readonly #agent: Agent;

  constructor(agent: Agent) {
    this.#agent = agent;
    agent.follow(this);
    void this.#run();
  }

  async #run(): Promise<void> {
    let pause = PAUSE;
    while (!this.#ended.signal.aborted && !this.#agent.isClosed) {
      try {
        const filter = { subjects: ["agents"] };
        const stream = this.#agent.stream<Told>("hub.events.watch", filter, { signal: this.#ended.signal });
        for await (const told of stream) {
          this.#take(told);
          pause = PAUSE;
        }
      } catch {
        // Ended, refused, or the agent is closed: the next round finds out.
      }
      this.stale();
      await this.#rest(pause);
      pause = Math.min(pause * 2, PAUSE_MOST);
    }
  }

  /** Waits so long, or until this is closed. */
  #rest(ms: number): Promise<void> {
    const { signal } = this.#ended;
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = this.#agent.environment.timer(ms, resolve);
      signal.addEventListener("abort", () => {
        cancel();
        resolve();
      });
    });
  }

  #take(told: Told): void {
    if (told.event === "snapshot") {
      // It comes in parts: what was known holds until the last of them.
      this.#next ??= new Map();
      for (const agent of told.agents ?? []) this.#next.set(agent.agent_id, agent);
      if (told.more === true) return;
      this.#agents = this.#next;
      this.#next = undefined;
      this.#fresh = true;
    } else if (told.event === "agent.disconnected" && told.agent_id !== undefined) {
      this.#agents.delete(told.agent_id);
    } else if (told.agent !== undefined) {
      this.#agents.set(told.agent.agent_id, told.agent);
    }
    this.#changed();
  }

  /** @internal The connection is gone: what is known may be old. */
  stale(): void {
    this.#next = undefined;
    if (!this.#fresh) return;
    this.#fresh = false;
    this.#changed();
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Whether the hub keeps this up to date at present. */
  get isFresh(): boolean {
    return this.#fresh;
  }

  /** Everybody, in no order. */
  list(): AgentInfo[] {
    return [...this.#agents.values()];
  }

  /** One agent. */
  get(agentId: string): AgentInfo | undefined {
    return this.#agents.get(agentId);
  }

  /** Those that offer a capability. */
  offering(capability: string): AgentInfo[] {
    return this.list().filter((agent) => agent.capabilities.includes(capability));
  }

  /** Calls back after each change, that of `isFresh` included; gives what ends that. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Resolves when `is` holds of this directory: at once, or after a change. */
  until(is: (directory: this) => boolean): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (!is(this)) return;
        end();
        resolve();
      };
      const end = this.onChange(look);
      look();
    });
  }

  /** Ends the watch. */
  close(): void {
    this.#agent.unfollow(this);
    this.#ended.abort();
    this.stale();
  }
}
