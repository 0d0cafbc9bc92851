/** Where ends of served calls are kept beyond the SDK's own memory. */

import { decode, encode } from "../codec/index.js";
import type { Outcome, Payload, Served } from "../session/types.js";

/**
 * A store of the program's own for ends of calls, so that another life of the process, or a twin, does not run an intent
 * twice either. The SDK asks it before a handler runs, and gives it what is final: results, and failures that are neither
 * retryable nor `cancelled`. One that fails is passed over, with a warning.
 */
export interface DedupeStore {
  /** What was kept of this intent. */
  get(intent: string): Promise<Uint8Array | undefined> | Uint8Array | undefined;
  /** Keeps an end, for 24 h where it can. */
  set(intent: string, end: Uint8Array): Promise<void> | void;
}

/** A store in memory: it outlives agents, not the process. The oldest go first. */
export class MemoryStore implements DedupeStore {
  readonly #ends = new Map<string, Uint8Array>();
  #bytes = 0;

  readonly #bytesMax: number;

  constructor(
    /** Most bytes that are kept. */
    bytesMax = 64 * 1024 * 1024,
  ) {
    this.#bytesMax = bytesMax;
  }

  get(intent: string): Uint8Array | undefined {
    return this.#ends.get(intent);
  }

  set(intent: string, end: Uint8Array): void {
    this.#bytes +=
      end.length + intent.length - (this.#ends.has(intent) ? this.#ends.get(intent)!.length + intent.length : 0);
    this.#ends.delete(intent);
    this.#ends.set(intent, end);
    for (const [oldest, bytes] of this.#ends) {
      if (this.#bytes <= this.#bytesMax) return;
      this.#ends.delete(oldest);
      this.#bytes -= bytes.length + oldest.length;
    }
  }
}

interface Stored {
  outcome: Outcome;
  chunks: Payload[] | undefined;
  ms: number;
}

/** An end as bytes. */
export function packServed({ outcome, chunks, executionMs }: Served): Uint8Array {
  return encode({ outcome, chunks, ms: executionMs } satisfies Stored);
}

/** @throws when the bytes are none of {@link packServed}. */
export function unpackServed(bytes: Uint8Array): Served {
  const { outcome, chunks, ms } = decode(bytes) as Stored;
  if (!("payload" in outcome) && !("failure" in outcome)) throw new TypeError("no end of a call");
  return { outcome, chunks, executionMs: ms };
}
