/** The own capabilities of the hub in memory. */

import { decode, encode } from "../codec/index.js";
import { Kind, type Call, type CapabilityHeader, type Result } from "../frames/index.js";
import type { HubCall, Peer } from "./peer.js";

/** A task that the hub in memory has taken. */
export interface Task {
  call: HubCall;
  state: string;
  result: Result | undefined;
  body: Uint8Array | undefined;
  /** Its caller said RECEIPT. */
  isReceived: boolean;
}

/** What the capabilities look at, and do. */
export interface Registry {
  peers: ReadonlyMap<string, Peer>;
  tasks: ReadonlyMap<string, Task>;
  cancel(call: HubCall): void;
}

/** Answers a call of a capability under `hub.`. */
export function answerOwn(hub: Registry, caller: Peer, header: Call, body: Uint8Array | undefined): void {
  const { id, request_id } = header;
  const asked = (body === undefined ? {} : decode(body)) as { agent_id?: string; task_id?: string };
  const answer = (value: unknown): void =>
    caller.send(Kind.Result, { id, status: "completed", request_id, target: "hub" }, encode(value));
  const refuse = (code: string, field: string): void => {
    const error = { code, message: `no such ${field}`, retryable: false, details: encode({ field }) };
    caller.send(Kind.Result, { id, status: "failed", request_id, error });
  };
  const peers = [...hub.peers.values()];
  const task = asked.task_id === undefined ? undefined : hub.tasks.get(asked.task_id);
  switch (header.capability) {
    case "hub.agents.list":
      return answer({ agents: peers.map((peer) => peer.info) });
    case "hub.agents.get": {
      const peer = hub.peers.get(asked.agent_id ?? "");
      return peer === undefined ? refuse("invalid_request", "agent_id") : answer({ agent: peer.info });
    }
    case "hub.capabilities.list":
      return answer({ capabilities: dictionary(peers) });
    case "hub.tasks.list":
      return answer({ tasks: [...hub.tasks.values()].map(taskInfo) });
    case "hub.tasks.get":
      return task === undefined ? refuse("invalid_request", "task_id") : answer(taskInfo(task));
    case "hub.tasks.cancel": {
      if (task === undefined) return refuse("invalid_request", "task_id");
      const cancelled = !["SUCCEEDED", "FAILED"].includes(task.state);
      if (cancelled) hub.cancel(task.call);
      return answer({ task_id: asked.task_id, state: task.state, cancelled });
    }
    case "hub.events.watch":
      caller.send(Kind.Accept, { id, request_id, target: "hub" });
      caller.watches.set(id, { seq: 0 });
      return caller.tell(id, { event: "snapshot", agents: peers.map((peer) => peer.info), more: false });
    default:
      return refuse("no_capability", "capability");
  }
}

function dictionary(peers: Peer[]): unknown[] {
  const names = new Set(peers.flatMap((peer) => [...peer.offers.keys()]));
  return [...names].map((name) => {
    const offering = peers.filter((peer) => peer.offers.has(name));
    return { name, agents: offering.map((peer) => offerInfo(peer, peer.offers.get(name)!)) };
  });
}

function offerInfo(peer: Peer, offer: CapabilityHeader): unknown {
  const { version, description, idempotent } = offer;
  const read = (schema: Uint8Array | undefined): unknown => (schema === undefined ? undefined : decode(schema));
  const [input_schema, output_schema] = [read(offer.input_schema), read(offer.output_schema)];
  return { agent_id: peer.id, status: peer.status, version, description, idempotent, input_schema, output_schema };
}

function taskInfo({ call, state, result, body }: Task): Record<string, unknown> {
  const { capability, caller, attempt } = call.header;
  const [task_id, request_id] = [call.taskId, call.requestId];
  const info = { task_id, state, capability, request_id, caller, attempt, age_ms: 0, unchanged_ms: 0 };
  const value = body === undefined ? null : decode(body);
  if (state === "SUCCEEDED") return { ...info, target: call.provider?.id, result: value };
  return state === "FAILED" ? { ...info, error: result?.error } : info;
}
