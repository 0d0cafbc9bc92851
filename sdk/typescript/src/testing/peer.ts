/** One agent, as the hub in memory knows it. */

import { encode } from "../codec/index.js";
import {
  encodeToAgent,
  Kind,
  type CapabilityHeader,
  type Hello,
  type LoadHeader,
  type ToAgent,
  type Uint,
} from "../frames/index.js";
import type { HubEnd } from "./wire.js";

/** A call that the hub has taken. */
export interface HubCall {
  callId: string;
  caller: Peer;
  /** The caller's id of it; of the connection that it has now. */
  callerId: Uint;
  requestId: string;
  header: ToAgent[Kind.Call];
  body: Uint8Array | undefined;
  provider: Peer | undefined;
  /** The hub's own id of it towards the provider. */
  providerId: number;
  taskId: string | undefined;
  /** Of a fan-out. */
  group: Group | undefined;
  /** Only these agents. */
  agents: string[] | undefined;
  /** A provider said ACCEPT, or something that stands for it. */
  accepted: boolean;
}

/** The parts of a fan-out. */
export interface Group {
  left: number;
  targets: number;
  completed: number;
}

/** An agent that said HELLO at least once. */
export class Peer {
  end: HubEnd | undefined;
  hello: Hello;
  readonly offers = new Map<string, CapabilityHeader>();
  status = "ready";
  load: LoadHeader | undefined;
  /** Calls that it works on, by the hub's id. */
  readonly serving = new Map<number, HubCall>();
  /** Watches of `hub.events.watch`, with the next number of each. */
  readonly watches = new Map<Uint, { seq: number }>();

  constructor(hello: Hello, end: HubEnd) {
    this.hello = hello;
    this.greet(hello, end);
  }

  greet(hello: Hello, end: HubEnd): void {
    this.hello = hello;
    this.end = end;
    this.status = hello.status ?? "ready";
    this.load = hello.load;
    this.offers.clear();
    this.watches.clear();
    for (const capability of hello.capabilities ?? []) this.offers.set(capability.name, capability);
  }

  get id(): string {
    return this.hello.agent_id;
  }

  get max(): number {
    return Number(this.hello.max_concurrency ?? 50);
  }

  send<K extends keyof ToAgent>(kind: K, header: ToAgent[K], body?: Uint8Array): void {
    this.end?.send(encodeToAgent(kind, header, body));
  }

  /** An event for one of its watches. */
  tell(id: Uint, event: unknown): void {
    const watch = this.watches.get(id);
    if (watch === undefined) return;
    this.send(Kind.Chunk, { id, seq: watch.seq }, encode(event));
    watch.seq += 1;
  }

  offersName(name: string): boolean {
    const names = [...this.offers.values()].flatMap((offer) => [offer.name, ...(offer.aliases ?? [])]);
    return names.includes(name);
  }

  /** Whether it may be given a call of this name. */
  canServe(name: string): boolean {
    return this.end !== undefined && this.status !== "draining" && this.offersName(name);
  }

  get info(): Record<string, unknown> {
    return {
      agent_id: this.id,
      identity: this.id,
      instance: this.hello.instance,
      status: this.end === undefined ? "away" : this.status,
      labels: Object.fromEntries(this.hello.labels ?? []),
      capabilities: [...this.offers.keys()],
      in_flight: this.serving.size,
      max_concurrency: this.max,
      connected_ms: 0,
      load: { ...this.load, levels: Object.fromEntries(this.load?.levels ?? []) },
    };
  }

  goodbye(code: string, reconnectAfterMs?: number): void {
    this.send(Kind.Goodbye, { code, reconnect_after_ms: reconnectAfterMs });
  }
}
