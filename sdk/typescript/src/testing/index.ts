/**
 * A hub in memory, for the tests of programs: agents made with it call each other with the SDK's own behaviour, without
 * sockets, certificates or a hub's binary.
 *
 * It routes calls, streams, fan-outs and tasks, joins repeated request ids, gives returning providers their calls again,
 * and lists agents. It has no policy, no time limits, no schemas, no retries and no store.
 */

import { Agent, type AgentOptions } from "../client/agent.js";
import {
  decodeToHub,
  Kind,
  type Accept,
  type Call,
  type Chunk,
  type FrameToHub,
  type Hello,
  type LoadHeader,
  type Result,
  type Uint,
} from "../frames/index.js";
import { GOODBYE } from "../session/goodbye.js";
import type { Environment } from "../transport/index.js";
import { answerOwn, type Registry, type Task } from "./own.js";
import { Peer, type HubCall } from "./peer.js";
import { memory, type HubEnd, type HubEvents } from "./wire.js";

export type { HubEnd, HubEvents } from "./wire.js";

const MAX_MESSAGE = 1_048_576;

/** Limits and times that WELCOME says; those of a hub without configuration. */
export interface FakeHubOptions {
  keepaliveMs?: number;
  suspectMs?: number;
  goneMs?: number;
  maxMessage?: number;
  maxInFlight?: number;
}

/** A hub in memory. */
export class FakeHub {
  readonly #peers = new Map<string, Peer>();
  readonly #everOffered = new Set<string>();
  /** Calls that are open, by caller and request id. */
  readonly #open = new Map<string, HubCall>();
  readonly #ended = new Map<string, { header: Result; body: Uint8Array | undefined }>();
  readonly #tasks = new Map<string, Task>();
  #waiting: HubCall[] = [];
  readonly #registry: Registry = {
    peers: this.#peers,
    tasks: this.#tasks,
    cancel: (call) => this.#cancelCall(call, false),
  };
  readonly #looks = new Set<() => void>();
  #nextId = 0;

  readonly #options: FakeHubOptions;

  constructor(options: FakeHubOptions = {}) {
    this.#options = options;
  }

  /** The environment that leads agents here: for those that are not made by {@link FakeHub.agent}. */
  environment(): Environment {
    return memory((end) => this.accept(end));
  }

  /** Takes a connection: for a server of your own that puts real sockets in front of this. */
  accept(end: HubEnd): HubEvents {
    let peer: Peer | undefined;
    return {
      message: (message) => {
        const frame = decodeToHub(message);
        if (frame.kind === Kind.Hello) peer = this.#hello(frame.header, end);
        else if (peer?.end === end) this.#frame(peer, frame);
      },
      gone: () => {
        if (peer?.end === end) this.#gone(peer);
      },
    };
  }

  /** Connects an agent of this name. */
  agent(agentId: string, options: Partial<AgentOptions> = {}): Promise<Agent> {
    const own = { url: "ws://fake", agentId, reconnectMs: [0, 0] as [number, number], log: () => {} };
    return new Agent({ ...own, ...options }, this.environment()).connect();
  }

  /** Cuts an agent's connection, as a network would. It comes back by itself. */
  disconnect(agentId: string): void {
    this.#peers.get(agentId)?.end?.close();
  }

  /** Says GOODBYE to an agent, and closes. */
  goodbye(agentId: string, code: string, reconnectAfterMs?: number): void {
    const peer = this.#peers.get(agentId);
    peer?.goodbye(code, reconnectAfterMs);
    peer?.end?.close(GOODBYE[code]);
  }

  /** Whether an agent is connected. */
  isConnected(agentId: string): boolean {
    return this.#peers.get(agentId)?.end !== undefined;
  }

  /** Resolves when `is` holds: at once, or after an agent came, went, or said something of itself. */
  until(is: (hub: this) => boolean): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (!is(this)) return;
        this.#looks.delete(look);
        resolve();
      };
      this.#looks.add(look);
      look();
    });
  }

  /** What an agent last said of its load. */
  loadOf(agentId: string): LoadHeader | undefined {
    return this.#peers.get(agentId)?.load;
  }

  #hello(hello: Hello, end: HubEnd): Peer {
    const {
      keepaliveMs = 5000,
      suspectMs = 15_000,
      goneMs = 30_000,
      maxMessage = MAX_MESSAGE,
      maxInFlight = 1024,
    } = this.#options;
    let peer = this.#peers.get(hello.agent_id);
    const returned = peer?.hello.instance === hello.instance;
    if (peer === undefined) {
      peer = new Peer(hello, end);
      this.#peers.set(hello.agent_id, peer);
    } else {
      const old = peer.end;
      if (old !== undefined) this.goodbye(hello.agent_id, "replaced");
      peer.greet(hello, end);
    }
    for (const name of peer.offers.keys()) this.#everOffered.add(name);
    peer.send(Kind.Welcome, {
      session: `fake-${(this.#nextId += 1)}`,
      hub: "fake/1",
      features: [],
      keepalive_ms: keepaliveMs,
      suspect_ms: suspectMs,
      gone_ms: goneMs,
      max_message: maxMessage,
      max_in_flight: maxInFlight,
      granted: { provide: ["*"], call: ["*"] },
      warnings: [],
    });
    this.#takeUp(peer, returned);
    for (const { call, result, body, isReceived } of this.#tasks.values()) {
      if (call.caller === peer && result !== undefined && !isReceived)
        peer.send(Kind.Result, { ...result, id: undefined }, body);
    }
    this.#announce("agent.connected", peer);
    this.#giveWaiting();
    return peer;
  }

  /** A provider is back: it gets its calls again, or has lost them as another process. */
  #takeUp(peer: Peer, returned: boolean): void {
    const calls = [...peer.serving.values()];
    peer.serving.clear();
    for (const call of calls) {
      if (returned) this.#give(call, peer);
      else this.#fail(call, "agent_lost", "the provider went away");
    }
  }

  #gone(peer: Peer): void {
    peer.end = undefined;
    peer.watches.clear();
    this.#announce("agent.disconnected", peer);
  }

  #frame(peer: Peer, frame: FrameToHub): void {
    switch (frame.kind) {
      case Kind.Update:
        peer.load = frame.header.load ?? peer.load;
        for (const capability of frame.header.add ?? []) {
          peer.offers.set(capability.name, capability);
          this.#everOffered.add(capability.name);
        }
        for (const name of frame.header.remove ?? []) peer.offers.delete(name);
        peer.status = frame.header.status ?? peer.status;
        this.#announce("agent.updated", peer);
        return this.#giveWaiting();
      case Kind.Goodbye:
        return peer.end?.close(1000);
      case Kind.Call:
        return this.#call(peer, frame.header, frame.body);
      case Kind.Accept:
        return this.#accept(peer, frame.header);
      case Kind.Chunk:
        return this.#chunk(peer, frame.header, frame.body);
      case Kind.Result:
        return this.#result(peer, frame.header, frame.body);
      case Kind.Credit: {
        const { id, n, target } = frame.header;
        for (const call of this.#callsOf(peer, id)) {
          if (target === undefined || target === call.provider?.id)
            call.provider?.send(Kind.Credit, { id: call.providerId, n });
        }
        return;
      }
      case Kind.Cancel:
        return this.#cancel(peer, frame.header.id, frame.header.wait === true);
      case Kind.Receipt: {
        const task = this.#tasks.get(frame.header.task_id);
        if (task?.call.caller === peer) task.isReceived = true;
        return;
      }
      default:
    }
  }

  #callsOf(peer: Peer, id: Uint): HubCall[] {
    return [...this.#open.values()].filter((call) => call.caller === peer && call.callerId === id);
  }

  #call(caller: Peer, header: Call, body: Uint8Array | undefined): void {
    if (header.capability.startsWith("hub.")) return answerOwn(this.#registry, caller, header, body);
    const requestId = header.request_id ?? `made-${(this.#nextId += 1)}`;
    const key = `${caller.id}\0${requestId}`;
    const joined = [...this.#open].filter(([own]) => own === key || own.startsWith(`${key}\0`));
    if (joined.length > 0) {
      for (const [, call] of joined) call.callerId = header.id;
      return;
    }
    const ended = this.#ended.get(key);
    if (ended !== undefined)
      return caller.send(Kind.Result, { ...ended.header, id: header.id, duplicate: true }, ended.body);
    const isFanOut = header.select !== undefined && header.select !== "one" ? true : (header.agents?.length ?? 0) > 1;
    if (isFanOut) return this.#fanOut(caller, header, requestId, body);
    const call = this.#made(caller, header, requestId, body, header.agents);
    const isTask = header.mode === "task";
    if (isTask) {
      call.taskId = `task-${call.callId}`;
      call.header.task_id = call.taskId;
      this.#tasks.set(call.taskId, { call, state: "QUEUED", result: undefined, body: undefined, isReceived: false });
      caller.send(Kind.Accept, { id: header.id, request_id: requestId, call_id: call.callId, task_id: call.taskId });
    }
    this.#open.set(key, call);
    const provider = this.#choose(call);
    if (provider !== undefined) return this.#give(call, provider);
    const isBusy = [...this.#peers.values()].some((peer) => peer.canServe(header.capability) && allowed(call, peer));
    if (isTask || isBusy) this.#waiting.push(call);
    else if (this.#everOffered.has(header.capability)) this.#fail(call, "no_instance", "nobody can take it now", true);
    else this.#fail(call, "no_capability", `nobody has ever offered ${header.capability}`);
  }

  #fanOut(caller: Peer, header: Call, requestId: string, body: Uint8Array | undefined): void {
    const able = [...this.#peers.values()].filter((peer) => peer.canServe(header.capability));
    const named = header.agents === undefined ? able : able.filter((peer) => header.agents!.includes(peer.id));
    const targets = typeof header.select === "number" ? named.slice(0, header.select) : named;
    const group = { left: targets.length, targets: targets.length, completed: 0 };
    for (const target of targets) {
      const call = this.#made(caller, header, requestId, body, [target.id]);
      call.group = group;
      this.#open.set(`${caller.id}\0${requestId}\0${target.id}`, call);
      this.#give(call, target);
    }
    if (targets.length === 0) caller.send(Kind.Result, { id: header.id, status: "no_instance", request_id: requestId });
  }

  #made(
    caller: Peer,
    header: Call,
    requestId: string,
    body: Uint8Array | undefined,
    agents: string[] | undefined,
  ): HubCall {
    const callId = `fake-${(this.#nextId += 1)}`;
    const { capability, credit, labels, traceparent, tracestate, content_type, preferred_timeout_ms } = header;
    return {
      callId,
      caller,
      callerId: header.id,
      requestId,
      header: {
        id: 0,
        request_id: requestId,
        call_id: callId,
        capability,
        caller: caller.id,
        attempt: 0,
        deadline_ms: header.budget_ms ?? 60_000,
        preferred_timeout_ms,
        stream: header.stream === true,
        credit: header.stream === true ? (credit ?? 16) : undefined,
        mode: header.mode ?? "call",
        priority: header.priority ?? "normal",
        labels,
        traceparent,
        tracestate,
        content_type,
        private: header.private,
      },
      body,
      provider: undefined,
      providerId: 0,
      taskId: undefined,
      group: undefined,
      agents,
      accepted: false,
    };
  }

  /** The least loaded agent that can take a call. */
  #choose(call: HubCall): Peer | undefined {
    const able = [...this.#peers.values()].filter(
      (peer) => peer.canServe(call.header.capability) && peer.serving.size < peer.max && allowed(call, peer),
    );
    return able.sort((a, b) => a.serving.size / a.max - b.serving.size / b.max)[0];
  }

  #give(call: HubCall, provider: Peer): void {
    call.provider = provider;
    call.providerId = this.#nextId += 1;
    call.header.id = call.providerId;
    call.header.attempt = Number(call.header.attempt) + 1;
    const asked = call.header.capability;
    const own = [...provider.offers.values()].find(({ name, aliases }) => name === asked || aliases?.includes(asked));
    provider.serving.set(call.providerId, call);
    provider.send(Kind.Call, { ...call.header, capability: own?.name ?? call.header.capability }, call.body);
  }

  #giveWaiting(): void {
    this.#waiting = this.#waiting.filter((call) => {
      const provider = this.#choose(call);
      if (provider !== undefined) this.#give(call, provider);
      return provider === undefined;
    });
  }

  #accept(provider: Peer, header: Accept): void {
    const call = provider.serving.get(Number(header.id));
    if (call === undefined) return;
    call.accepted = true;
    if (call.taskId !== undefined) return this.#step(call.taskId, header.queue_depth === 0 ? "PROCESSING" : "RECEIVED");
    if (call.header.mode === "notify") return this.#settle(call, { status: "completed" }, undefined);
    const { requestId, callId, header: own } = call;
    call.caller.send(Kind.Accept, {
      ...header,
      id: call.callerId,
      request_id: requestId,
      call_id: callId,
      target: provider.id,
      attempt: own.attempt,
    });
  }

  #step(taskId: string, state: string): void {
    const task = this.#tasks.get(taskId);
    if (task !== undefined) task.state = state;
  }

  #chunk(provider: Peer, header: Chunk, body: Uint8Array | undefined): void {
    const call = provider.serving.get(Number(header.id));
    if (call === undefined) return;
    if (call.taskId === undefined)
      return call.caller.send(Kind.Chunk, { ...header, id: call.callerId, target: provider.id }, body);
    this.#step(call.taskId, "PROCESSING");
    provider.send(Kind.Credit, { id: call.providerId, n: 1 });
  }

  #result(provider: Peer, header: Result, body: Uint8Array | undefined): void {
    const id = Number(header.id);
    const call = provider.serving.get(id);
    provider.serving.delete(id);
    const isNotified = call?.header.mode === "notify" && header.status === "completed";
    if (call !== undefined)
      this.#settle(call, isNotified ? { status: "completed" } : header, isNotified ? undefined : body);
    this.#giveWaiting();
  }

  #fail(call: HubCall, code: string, message: string, retryable = false): void {
    this.#settle(
      call,
      { status: code === "no_instance" ? "no_instance" : "failed", error: { code, message, retryable } },
      undefined,
    );
  }

  /** A call, or one target's part of it, has ended. */
  #settle(call: HubCall, end: Result, body: Uint8Array | undefined): void {
    const base = `${call.caller.id}\0${call.requestId}`;
    const key = call.group === undefined ? base : `${base}\0${call.provider?.id ?? ""}`;
    if (this.#open.get(key) !== call) return;
    this.#open.delete(key);
    const target = call.provider?.id;
    const outcome = end.error?.code ?? end.status;
    const attempts = target === undefined ? undefined : [{ target, outcome, ms: 0, reason: "fake" }];
    const { callerId: id, requestId: request_id, callId: call_id, taskId: task_id, group } = call;
    const header: Result = { ...end, id, request_id, call_id, task_id, target, attempts };
    if (group !== undefined) {
      call.caller.send(Kind.Result, { ...header, more: true }, body);
      group.left -= 1;
      group.completed += end.status === "completed" ? 1 : 0;
      const summary = { targets: group.targets, completed: group.completed, failed: group.targets - group.completed };
      if (group.left === 0) call.caller.send(Kind.Result, { id, status: "completed", request_id, call_id, summary });
      return;
    }
    if (end.error?.retryable !== true && !["no_capability", "cancelled"].includes(outcome))
      this.#ended.set(key, { header, body });
    if (task_id !== undefined) {
      const task = this.#tasks.get(task_id);
      if (task !== undefined)
        Object.assign(task, { state: end.status === "completed" ? "SUCCEEDED" : "FAILED", result: header, body });
    }
    call.caller.send(Kind.Result, header, body);
  }

  #cancel(caller: Peer, id: Uint, wait: boolean): void {
    caller.watches.delete(id);
    for (const call of this.#callsOf(caller, id)) this.#cancelCall(call, wait);
  }

  #cancelCall(call: HubCall, wait: boolean): void {
    const isGiven = call.provider?.serving.get(call.providerId) === call;
    this.#waiting = this.#waiting.filter((own) => own !== call);
    if (isGiven) call.provider!.send(Kind.Cancel, { id: call.providerId });
    if (!wait || !isGiven) this.#fail(call, "cancelled", "cancelled");
  }

  #announce(event: string, about: Peer): void {
    for (const look of this.#looks) look();
    const told = event === "agent.disconnected" ? { event, agent_id: about.id } : { event, agent: about.info };
    for (const peer of this.#peers.values()) for (const id of peer.watches.keys()) peer.tell(id, told);
  }
}

function allowed(call: HubCall, peer: Peer): boolean {
  return call.agents?.includes(peer.id) ?? true;
}
