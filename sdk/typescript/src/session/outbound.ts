/** What waits to be written, as data: control first, bodies in order. */

import type { Uint } from "../frames/index.js";
import { Queue } from "./queue.js";

/** Past so many queued bytes no further calls and chunks are put into the queue. */
const ROOM_BYTES = 256 * 1024;
/** Past so many the socket is not read either: what is read can ask for answers. */
const READ_BYTES = 4 * 1024 * 1024;

/** The queue of one connection. Emptied when the connection ends: what must survive is sent anew. */
export class Outbound {
  readonly #controls = new Queue<Uint8Array>();
  /** With the id of the CALL that an entry is, so that a cancelled one can be taken back. */
  readonly #bodies = new Queue<{ id: Uint | undefined; message: Uint8Array }>();
  #bytes = 0;

  /** ACCEPT, CREDIT, CANCEL, UPDATE: never waits behind bodies. */
  control(message: Uint8Array): void {
    this.#bytes += message.length;
    this.#controls.push(message);
  }

  /** RESULT, CHUNK, GOODBYE; CALL with its id: in the order sent. */
  body(message: Uint8Array, id?: Uint): void {
    this.#bytes += message.length;
    this.#bodies.push({ id, message });
  }

  /** Takes back a CALL that was not written yet. A CANCEL would overtake it otherwise. */
  withdraw(id: Uint): boolean {
    const entry = this.#bodies.remove((body) => body.id === id);
    if (entry === undefined) return false;
    this.#bytes -= entry.message.length;
    return true;
  }

  /** The next message to write. */
  pop(): Uint8Array | undefined {
    const message = this.#controls.shift() ?? this.#bodies.shift()?.message;
    if (message !== undefined) this.#bytes -= message.length;
    return message;
  }

  clear(): void {
    this.#controls.clear();
    this.#bodies.clear();
    this.#bytes = 0;
  }

  get isEmpty(): boolean {
    return this.#controls.length === 0 && this.#bodies.length === 0;
  }

  /** Whether more calls and chunks may be put in. */
  get hasRoom(): boolean {
    return this.#bytes < ROOM_BYTES;
  }

  /** Whether the socket may be read. */
  get mayRead(): boolean {
    return this.#bytes < READ_BYTES;
  }
}
