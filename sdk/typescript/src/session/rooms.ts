/** How many handlers of one capability run, what waits for one of them to end, and how long they usually take. */

import { CAPABILITIES_MAX } from "../limits.js";
import { Queue } from "./queue.js";
import type { Run } from "./run.js";

interface Room {
  running: number;
  /** Most that run at once. */
  most: number;
  /** In the order they came. The agent's own bound is theirs too. */
  waiting: Queue<Run>;
  /** Milliseconds, of the runs that completed, the latest counting most. */
  usual: number | undefined;
}

/** What can be said of a run's end while it is still to come. */
export interface Outlook {
  /** Runs that wait before it, if it waits. */
  before: number | undefined;
  /** Milliseconds expected until its end. */
  time: number | undefined;
}

/** One room for each capability. */
export class Rooms {
  readonly #byName = new Map<string, Room>();
  /** How many wait in all rooms. */
  waiting = 0;

  /** A call comes. True: its handler may start; else it waits for {@link Rooms.next}. */
  enter(run: Run): boolean {
    const { capability, most } = run;
    let room = this.#byName.get(capability);
    if (room === undefined) {
      if (this.#byName.size >= CAPABILITIES_MAX) this.#forgetIdle();
      room = { running: 0, most: Infinity, waiting: new Queue(), usual: undefined };
      this.#byName.set(capability, room);
    }
    room.most = Math.max(most ?? Infinity, 1);
    if (room.running >= room.most || room.waiting.length > 0) {
      room.waiting.push(run);
      this.waiting += 1;
      return false;
    }
    room.running += 1;
    return true;
  }

  /** A program that adds and removes ever new names: what is idle is only what they usually take. */
  #forgetIdle(): void {
    for (const [name, room] of this.#byName) {
      if (room.running === 0 && room.waiting.length === 0) this.#byName.delete(name);
    }
  }

  /** A handler ended; with its milliseconds if it completed. */
  leave({ capability }: Run, execution: number | undefined): void {
    const room = this.#byName.get(capability);
    if (room === undefined) return;
    room.running -= 1;
    if (execution !== undefined) room.usual = room.usual === undefined ? execution : (room.usual * 7 + execution) / 8;
  }

  /** The next that may start now. */
  next({ capability }: Run): Run | undefined {
    const room = this.#byName.get(capability);
    if (room === undefined || room.running >= room.most) return undefined;
    const next = room.waiting.shift();
    if (next === undefined) return undefined;
    room.running += 1;
    this.waiting -= 1;
    return next;
  }

  /** One that waited no longer does. */
  giveUp(run: Run): void {
    const taken = this.#byName.get(run.capability)?.waiting.remove((own) => own === run);
    if (taken !== undefined) this.waiting -= 1;
  }

  /** What may be said of a run that has not ended. */
  outlook(run: Run): Outlook {
    const room = this.#byName.get(run.capability);
    if (room === undefined) return { before: undefined, time: undefined };
    const before = room.waiting.indexOf(run);
    if (before < 0) return { before: undefined, time: room.usual };
    // Its own time, and that until one of those that run has ended for each that is before it.
    const time = room.usual === undefined ? undefined : room.usual + (room.usual * (before + 1)) / room.most;
    return { before, time };
  }
}
