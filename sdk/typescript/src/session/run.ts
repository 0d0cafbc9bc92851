/** One handler that runs, or the remembered end of one that is being told again. */

import { encodeToHub, Kind, type Dispatch, type Result, type Uint } from "../frames/index.js";
import { CREDIT_DEFAULT, TEXT_BYTES_MAX } from "../limits.js";
import { number, type Failure, type Invocation, type Now, type Outcome, type Payload, type RunKey, type Served } from "./types.js";

/** Bytes of the chunks of one stream that are kept so that it can be sent again after a reconnect. */
const CHUNK_BYTES_MAX = 1024 * 1024;

/** The chunks of one stream. */
export class Chunks {
  kept: Payload[] = [];
  /** `seq` of the first that is kept. */
  first = 0;
  #bytes = 0;

  get produced(): number {
    return this.first + this.kept.length;
  }

  push(payload: Payload): void {
    this.#bytes += payload.bytes.length;
    this.kept.push(payload);
  }

  at(seq: number): Payload | undefined {
    return this.kept[seq - this.first];
  }

  /** Lets go of sent chunks, once they are too many to be sent again. Unsent ones stay: credit bounds them. */
  shrink(sent: number): void {
    if (this.#bytes <= CHUNK_BYTES_MAX && this.first === 0) return;
    while (this.first < sent) {
      this.#bytes -= this.kept.shift()!.bytes.length;
      this.first += 1;
    }
  }

  get canStartOver(): boolean {
    return this.first === 0;
  }
}

/** What a repeated CALL asks for. */
export type Again = Pick<Invocation, "header" | "payload">;

/** One handler, or the remembered end of one that is being told again. */
export class Run {
  readonly requestId: string;
  readonly callId: string;
  readonly capability: string;
  /** Of a task: its chunks say how far it is, and are no part of its result. */
  readonly isTask: boolean;
  /** The hub's id on the present connection. */
  id: Uint | undefined;
  /** It is in the room of its capability. */
  hasEntered = false;
  /** Its handler has not started: others of its capability run, or the store is asked first. */
  waiting: Invocation | undefined;
  /** Most of its capability at once. */
  most: number | undefined;
  /** How long the handler says it takes. */
  expected: number | undefined;
  /** The processing time that the caller would like. */
  preferred: number | undefined;
  /** ACCEPT, or what stands for it, was sent to the newest CALL. */
  accepted = false;
  stream = false;
  /** Chunks allowed since seq 0, by the newest CALL. */
  credit = 0;
  /** Chunks sent to the newest CALL. */
  sent = 0;
  /** Chunks that the handler was allowed altogether. */
  permitted: number;
  chunks = new Chunks();
  started: Now;
  deadline: Now = 0;
  execution = 0;
  outcome: Outcome | undefined;
  /** It was told to end, and has not. */
  isCancelled = false;
  /** CALL came again meanwhile. */
  again: Again | undefined;
  /** The end is in memory already. */
  remembered = false;

  constructor(
    readonly key: RunKey,
    now: Now,
    readonly intent: string,
    header: Dispatch,
  ) {
    this.requestId = header.request_id;
    this.callId = header.call_id;
    this.capability = header.capability;
    this.isTask = header.task_id !== undefined;
    this.started = now;
    this.answer(now, header);
    this.permitted = this.credit;
  }

  /** What it says goes to this CALL from now on. */
  answer(now: Now, header: Dispatch): void {
    this.id = header.id;
    this.accepted = false;
    this.sent = 0;
    this.stream = header.stream;
    this.credit = Number(header.credit ?? CREDIT_DEFAULT);
    this.deadline = now + Number(header.deadline_ms);
    this.preferred = number(header.preferred_timeout_ms);
  }

  /** It ended before, like this. */
  remember({ outcome, chunks, executionMs }: Served): void {
    this.remembered = true;
    this.outcome = outcome;
    this.execution = executionMs;
    this.stream &&= !this.isTask && chunks !== undefined;
    for (const chunk of chunks ?? []) this.chunks.push(chunk);
  }

  /** Takes the next piece that may be sent: one that is there, within the credit. */
  nextChunk(id: Uint): Uint8Array | undefined {
    if (!this.stream || this.sent >= this.credit) return undefined;
    const payload = this.chunks.at(this.sent);
    if (payload === undefined) return undefined;
    const message = encodeToHub(Kind.Chunk, { id, seq: this.sent, content_type: payload.contentType }, payload.bytes);
    this.sent += 1;
    this.accepted = true;
    return message;
  }

  /** RESULT, within the hub's limit. */
  result(id: Uint, maxMessage: number): Uint8Array {
    const outcome = this.outcome;
    if (outcome === undefined) throw new Error("no outcome");
    if ("failure" in outcome) {
      const message = this.failed(id, outcome.failure);
      return message.length <= maxMessage ? message : this.failed(id, { ...outcome.failure, details: undefined });
    }
    const { bytes, contentType } = outcome.payload;
    const header: Result = {
      id,
      status: "completed",
      request_id: this.requestId,
      call_id: this.callId,
      execution_ms: Math.floor(this.execution),
      content_type: contentType,
    };
    const message = encodeToHub(Kind.Result, header, bytes.length > 0 ? bytes : undefined);
    if (message.length <= maxMessage) return message;
    const text = `the result has ${message.length} bytes as a message, the hub takes ${maxMessage}`;
    return this.failed(id, failure("handler_error", text));
  }

  failed(id: Uint, failure: Failure): Uint8Array {
    return refusal(id, failure, this.requestId, this.callId, Math.floor(this.execution));
  }
}

export function failure(code: string, message: string, retryable = false): Failure {
  return { code, message, retryable };
}

export const CANCELLED = failure("cancelled", "cancelled");

/** RESULT `failed`, for a CALL that no run stands for as well. */
export function refusal(
  id: Uint,
  failure: Failure,
  requestId?: string,
  callId?: string,
  executionMs?: number,
): Uint8Array {
  return encodeToHub(Kind.Result, {
    id,
    status: "failed",
    request_id: requestId,
    call_id: callId,
    execution_ms: executionMs,
    error: { ...failure, message: cut(failure.message) },
  });
}

/** A text of at most so many bytes as the wire allows, without half a character. */
export function cut(text: string): string {
  // TextEncoder puts U+FFFD for half a surrogate pair, which an error message of any origin may have.
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= TEXT_BYTES_MAX) return new TextDecoder().decode(bytes);
  let end = TEXT_BYTES_MAX;
  while ((bytes[end]! & 0xc0) === 0x80) end -= 1;
  return new TextDecoder().decode(bytes.subarray(0, end));
}
