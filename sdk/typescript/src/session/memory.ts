/** Ends of calls that handlers served, so that a repeated CALL is answered without a second run. */

import { Queue } from "./queue.js";
import type { Now, Served } from "./types.js";

/** Most bytes kept, with the bodies. */
export const BYTES_MAX = 64 * 1024 * 1024;
/** How long an end is kept, in milliseconds. */
export const KEEP = 600_000;
/** What an entry costs besides its bodies, roughly. */
const OVERHEAD = 256;

function bytesOf(intent: string, { outcome, chunks }: Served): number {
  const end = "payload" in outcome ? outcome.payload.bytes.length : outcome.failure.message.length;
  const pieces = (chunks ?? []).reduce((sum, chunk) => sum + chunk.bytes.length + OVERHEAD / 4, 0);
  return intent.length + end + pieces + OVERHEAD;
}

/** The ends kept, oldest first out. */
export class Memory {
  readonly #byIntent = new Map<string, { until: Now; served: Served }>();
  readonly #order = new Queue<{ until: Now; intent: string }>();
  #bytes = 0;

  keep(now: Now, intent: string, served: Served): void {
    const old = this.#byIntent.get(intent);
    if (old !== undefined) this.#bytes -= bytesOf(intent, old.served);
    const until = now + KEEP;
    this.#bytes += bytesOf(intent, served);
    this.#byIntent.set(intent, { until, served });
    this.#order.push({ until, intent });
    while (this.#bytes > BYTES_MAX && this.#order.length > 0) this.#forgetOldest();
  }

  find(intent: string): Served | undefined {
    return this.#byIntent.get(intent)?.served;
  }

  /** Lets go of what is over age. */
  expire(now: Now): void {
    while (this.nextTimeout <= now) this.#forgetOldest();
  }

  get nextTimeout(): Now {
    return this.#order.peek()?.until ?? Infinity;
  }

  #forgetOldest(): void {
    const oldest = this.#order.shift();
    if (oldest === undefined) return;
    const kept = this.#byIntent.get(oldest.intent);
    // One that was kept anew meanwhile has a later place in the order.
    if (kept === undefined || kept.until !== oldest.until) return;
    this.#byIntent.delete(oldest.intent);
    this.#bytes -= bytesOf(oldest.intent, kept.served);
  }
}
