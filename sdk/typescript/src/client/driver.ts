/** Drives a session: the one place where its decisions meet socket, clock and timers. */

import { ConnectError } from "../errors.js";
import type { Session } from "../session/index.js";
import type { CallEvent, CallKey, Effect, Input, TaskEnd } from "../session/types.js";
import type { Environment, Socket, SocketEvents } from "../transport/index.js";

/** Past so many bytes in the socket the rest waits in the session's queue, where control overtakes bodies. */
const SOCKET_BYTES = 64 * 1024;

/** Who waits for the events of one call. */
export interface CallSink {
  onEvent(event: CallEvent): void;
}

/** What is for the agent to do: all that is not about socket and callers. */
export type Wanted = Exclude<Effect, { do: "tell" | "dial" | "ping" | "close" | "abort" }>;

/** One agent's session with its socket and its timer. */
export class Driver {
  #socket: Socket | undefined;
  readonly #sinks = new Map<CallKey, CallSink>();
  #nextKey = 0;
  #cancelTimer: (() => void) | undefined;
  #timerAt = Infinity;
  #willFlush = false;
  #isPaused = false;
  #endWake: (() => void) | undefined;

  readonly #session: Session;
  readonly #url: string;
  readonly #wanted: (effect: Wanted) => void;

  constructor(
    session: Session,
    url: string,
    readonly environment: Environment,
    wanted: (effect: Wanted) => void,
  ) {
    this.#session = session;
    this.#url = url;
    this.#wanted = wanted;
  }

  start(): void {
    this.#endWake = this.environment.onWake?.(() => this.handle({ is: "woke" }));
    this.handle({ is: "start" });
  }

  /** Whether a session is open. */
  get isReady(): boolean {
    return this.#session.isReady;
  }

  /** A place for the events of a call, or of a task. */
  register(sink: CallSink): CallKey {
    const key = (this.#nextKey += 1);
    this.#sinks.set(key, sink);
    return key;
  }

  /** Gives the result of a task from the inbox to the handle that waits for it. */
  give(key: CallKey, { taskId, end }: TaskEnd): void {
    const sink = this.#sinks.get(key);
    this.forget(key);
    this.handle({ is: "forget", key });
    sink?.onEvent({ is: "ended", end });
    this.handle({ is: "received", taskId });
  }

  /** Nobody waits for this key any more. */
  forget(key: CallKey): void {
    this.#sinks.delete(key);
  }

  /** Tells the session what happened, and does what it wants. */
  handle(input: Input): void {
    for (const effect of this.#session.handle(this.environment.now(), input)) this.#perform(effect);
    this.#flushSoon();
    this.#schedule();
  }

  #perform(effect: Effect): void {
    switch (effect.do) {
      case "tell": {
        const sink = this.#sinks.get(effect.key);
        if (effect.event.is === "ended") this.#sinks.delete(effect.key);
        return sink?.onEvent(effect.event);
      }
      case "dial":
        return this.#dial();
      case "ping":
        return this.#socket?.ping();
      case "close":
        this.#flush(Infinity);
        return this.#socket?.close(effect.code);
      case "abort":
        return this.#drop();
      case "stopped":
        this.#drop();
        this.#endWake?.();
        return this.#wanted(effect);
      default:
        return this.#wanted(effect);
    }
  }

  #dial(): void {
    this.#drop();
    // What an earlier socket still tells is of no interest.
    const ifCurrent = (then: () => void): void => {
      if (this.#socket === socket) then();
    };
    const gone = (input: Input): void =>
      ifCurrent(() => {
        this.#socket = undefined;
        this.handle(input);
      });
    const events: SocketEvents = {
      opened: () => ifCurrent(() => this.handle({ is: "opened" })),
      message: (message) => {
        if (this.#socket !== socket) return;
        this.handle({ is: "message", message });
        this.#holdReading();
      },
      text: () => ifCurrent(() => this.handle({ is: "text" })),
      alive: () => ifCurrent(() => this.handle({ is: "alive" })),
      drained: () => ifCurrent(() => this.#flush(SOCKET_BYTES)),
      lost: (code, reason) => gone({ is: "lost", code, reason }),
      failed: (error) => gone({ is: "dialFailed", error }),
    };
    let socket: Socket | undefined;
    try {
      socket = this.environment.dial(this.#url, events);
      this.#socket = socket;
    } catch (error) {
      this.handle({ is: "dialFailed", error: new ConnectError("config", (error as Error).message) });
    }
  }

  #drop(): void {
    const socket = this.#socket;
    this.#socket = undefined;
    this.#isPaused = false;
    socket?.abort();
  }

  /** What is read can ask for answers: a socket that takes none is not read either. */
  #holdReading(): void {
    if (this.#session.mayRead === !this.#isPaused) return;
    this.#isPaused = !this.#isPaused;
    if (this.#isPaused) this.#socket?.pause();
    else this.#socket?.resume();
  }

  #flushSoon(): void {
    if (this.#willFlush || this.#socket === undefined) return;
    this.#willFlush = true;
    this.environment.soon(() => {
      this.#willFlush = false;
      this.#flush(SOCKET_BYTES);
    });
  }

  /** Writes what waits, until so many bytes are in the socket. */
  #flush(most: number): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    const next = (): Uint8Array | undefined => (socket.buffered < most ? this.#session.pop() : undefined);
    let message = next();
    if (message === undefined) return;
    socket.cork();
    while (message !== undefined) {
      socket.send(message);
      message = next();
      if (message !== undefined) continue;
      // What waited for room has it now.
      this.#wrote();
      message = next();
    }
    socket.uncork();
    this.#holdReading();
    this.#schedule();
  }

  #wrote(): void {
    for (const effect of this.#session.handle(this.environment.now(), { is: "wrote" })) this.#perform(effect);
  }

  /** Sets the timer, where the one that is set would be too late: one that comes too early only looks. */
  #schedule(): void {
    const at = this.#session.nextTimeout;
    if (at >= this.#timerAt) return;
    this.#cancelTimer?.();
    this.#timerAt = at;
    this.#cancelTimer = this.environment.timer(at - this.environment.now(), () => {
      this.#timerAt = Infinity;
      this.handle({ is: "timeout" });
    });
  }

  /** Takes the timer back: nothing of the agent is left. */
  end(): void {
    this.#cancelTimer?.();
    this.#timerAt = -Infinity;
    this.#sinks.clear();
  }
}
