/** Sockets in memory: what one end sends, the other gets a moment later. */

import type { Environment, Socket, SocketEvents } from "../transport/index.js";
import { common } from "../transport/index.js";

/** The hub's end of one connection. */
export interface HubEnd {
  send(message: Uint8Array): void;
  /** Ends the connection, as a close frame with this code would; without one as a cut wire would. */
  close(code?: number, reason?: string): void;
}

/** What the hub does with a connection. */
export interface HubEvents {
  message(message: Uint8Array): void;
  gone(): void;
}

/** An environment whose sockets all lead to `accept`. */
export function memory(accept: (end: HubEnd) => HubEvents): Environment {
  return {
    ...common(),
    canPing: true,
    soon: (callback) => queueMicrotask(callback),
    dial(_, events) {
      const wire = new Wire(events, accept);
      queueMicrotask(() => wire.open());
      return wire;
    },
  };
}

class Wire implements Socket {
  #hub: HubEvents | undefined;
  #isGone = false;
  readonly buffered = 0;

  readonly #events: SocketEvents;
  readonly #accept: (end: HubEnd) => HubEvents;

  constructor(events: SocketEvents, accept: (end: HubEnd) => HubEvents) {
    this.#events = events;
    this.#accept = accept;
  }

  open(): void {
    if (this.#isGone) return;
    this.#hub = this.#accept({
      send: (message) => this.#later(() => this.#events.message(message)),
      close: (code, reason = "") => this.#later(() => this.#end(() => this.#events.lost(code, reason))),
    });
    this.#events.opened();
  }

  /** As over a network: never within the call that sends, and in order. */
  #later(deliver: () => void): void {
    queueMicrotask(() => {
      if (!this.#isGone) deliver();
    });
  }

  #end(tell?: () => void): void {
    if (this.#isGone) return;
    this.#isGone = true;
    const hub = this.#hub;
    queueMicrotask(() => hub?.gone());
    tell?.();
  }

  send(message: Uint8Array): void {
    this.#later(() => this.#hub?.message(message));
  }

  cork(): void {}
  uncork(): void {}
  pause(): void {}
  resume(): void {}

  ping(): void {
    this.#later(() => this.#events.alive());
  }

  close(code: number): void {
    this.#later(() => this.#end(() => this.#events.lost(code, "")));
  }

  abort(): void {
    this.#end();
  }
}
