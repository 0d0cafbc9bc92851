/**
 * Results of tasks: to the handles that wait for them, else to the program's inbox, each once.
 *
 * The hub sends a result until it has its RECEIPT, so the same one may come several times. The receipt goes out when a
 * handle holds the result or the program took it from its inbox, and again for each repetition: the first one may have
 * been lost.
 */

import { encodeToHub, Kind } from "../frames/index.js";
import type { CallKey, Context, TaskEnd } from "./types.js";

/** Most results that wait in the inbox. The hub keeps the others, and sends them again. */
const HELD_MAX = 256;
/** Most bytes of their bodies. */
const HELD_BYTES = 64 * 1024 * 1024;
/** Tasks whose result was given out that are known, so that a repetition is not given out again. */
const TAKEN_MAX = 4096;

function bytesOf({ end }: TaskEnd): number {
  return ("reply" in end ? end.reply.body.bytes.length : end.error.message.length) + 512;
}

/** Who waits for which task, and what became of each. */
export class Results {
  /** Handles of each task, in the order they were made. */
  readonly #handles = new Map<string, CallKey[]>();
  readonly #byKey = new Map<CallKey, string>();
  /** In the inbox, with their bytes. */
  readonly #held = new Map<string, number>();
  #heldBytes = 0;
  /** In the order they were taken. */
  readonly #given = new Set<string>();

  /** A handle waits for this task. */
  wait(key: CallKey, taskId: string): void {
    this.#byKey.set(key, taskId);
    const keys = this.#handles.get(taskId);
    if (keys === undefined) this.#handles.set(taskId, [key]);
    else keys.push(key);
  }

  /** The same for a handle that was made from an id: its result may be here already. */
  claim(cx: Context, key: CallKey, taskId: string): void {
    this.wait(key, taskId);
    if (this.#held.has(taskId)) cx.effects.push({ do: "hand", key, taskId });
  }

  /** A handle is gone. False: there was none of this key. */
  forget(key: CallKey): boolean {
    const taskId = this.#byKey.get(key);
    if (taskId === undefined) return false;
    this.#byKey.delete(key);
    const keys = (this.#handles.get(taskId) ?? []).filter((own) => own !== key);
    if (keys.length > 0) this.#handles.set(taskId, keys);
    else this.#handles.delete(taskId);
    return true;
  }

  /** A result comes home. `asked`: the call that it answers by its id, if there is one. */
  arrive(cx: Context, asked: CallKey | undefined, end: TaskEnd): void {
    const { taskId } = end;
    const keys = this.#handles.get(taskId) ?? [];
    this.#handles.delete(taskId);
    for (const key of keys) this.#byKey.delete(key);
    if (asked !== undefined) keys.push(asked);
    if (keys.length > 0) {
      for (const key of keys) cx.effects.push({ do: "tell", key, event: { is: "ended", end: end.end } });
      return this.taken(cx, taskId);
    }
    if (this.#given.has(taskId)) return receipt(cx, taskId);
    if (this.#held.has(taskId)) return;
    const bytes = bytesOf(end);
    if (this.#held.size >= HELD_MAX || this.#heldBytes + bytes > HELD_BYTES) return;
    this.#held.set(taskId, bytes);
    this.#heldBytes += bytes;
    cx.effects.push({ do: "arrived", end });
  }

  /** A result is in the program's hands. */
  taken(cx: Context, taskId: string): void {
    this.#heldBytes -= this.#held.get(taskId) ?? 0;
    this.#held.delete(taskId);
    this.#given.add(taskId);
    if (this.#given.size > TAKEN_MAX) {
      const [oldest] = this.#given;
      this.#given.delete(oldest!);
    }
    receipt(cx, taskId);
  }

  /** Every handle that waits, in the order they were made; none does any more. */
  drain(): CallKey[] {
    const keys = [...this.#byKey.keys()].sort((a, b) => a - b);
    this.#handles.clear();
    this.#byKey.clear();
    return keys;
  }

  get isEmpty(): boolean {
    return this.#byKey.size === 0;
  }
}

function receipt(cx: Context, taskId: string): void {
  if (cx.link.canAnswer) cx.outbound.control(encodeToHub(Kind.Receipt, { task_id: taskId }));
}
