/** The WebSocket that browsers have, and with them every other runtime of today. */

import { ConnectError } from "../errors.js";
import { SUBPROTOCOL_MSGPACK } from "../limits.js";
import { common, DIAL_TIMEOUT, type Environment, type Socket, type SocketEvents } from "./index.js";

/** How often a full socket is looked at: browsers do not say when theirs has room. */
const LOOK_MS = 20;

class BrowserSocket implements Socket {
  readonly #socket: WebSocket;
  #events: SocketEvents | undefined;
  #isOpen = false;
  #looking = false;

  constructor(url: string, events: SocketEvents) {
    this.#events = events;
    this.#socket = new WebSocket(url, SUBPROTOCOL_MSGPACK);
    this.#socket.binaryType = "arraybuffer";
    const timer = setTimeout(() => this.#fail(`no connection within ${DIAL_TIMEOUT} ms`), DIAL_TIMEOUT);
    this.#socket.onopen = () => {
      clearTimeout(timer);
      this.#isOpen = true;
      this.#events?.opened();
    };
    this.#socket.onmessage = ({ data }: MessageEvent<unknown>) => {
      if (data instanceof ArrayBuffer) this.#events?.message(new Uint8Array(data));
      else this.#events?.text();
    };
    this.#socket.onclose = ({ code, reason }) => {
      clearTimeout(timer);
      // Before it was open a page learns nothing of the reason, not even the status of HTTP.
      if (this.#isOpen) this.#end()?.lost(code, reason);
      else this.#fail("the connection could not be opened");
    };
  }

  /** No further events. */
  #end(): SocketEvents | undefined {
    const events = this.#events;
    this.#events = undefined;
    return events;
  }

  #fail(text: string): void {
    this.#end()?.failed(new ConnectError("io", text));
    this.#socket.close();
  }

  send(message: Uint8Array): void {
    this.#socket.send(message as Uint8Array<ArrayBuffer>);
    if (this.#looking || this.buffered === 0) return;
    this.#looking = true;
    setTimeout(() => this.#look(), LOOK_MS);
  }

  #look(): void {
    this.#looking = false;
    this.#events?.drained();
  }

  get buffered(): number {
    return this.#socket.bufferedAmount;
  }

  // Browsers have none of these.
  cork(): void {}
  uncork(): void {}
  ping(): void {}
  pause(): void {}
  resume(): void {}

  close(code: number): void {
    // 1009 and the like are for the browser itself to say.
    this.#socket.close(code === 1000 || code >= 3000 ? code : 1000);
  }

  abort(): void {
    this.#end();
    this.#socket.close();
  }
}

/** The environment of a page, or of a runtime with a global `WebSocket`. */
export function browser(): Environment {
  return {
    ...common(),
    canPing: false,
    dial: (url, events) => new BrowserSocket(url, events),
    soon: (callback) => queueMicrotask(callback),
    onWake(callback) {
      if (typeof addEventListener !== "function") return () => {};
      const visible = (): void => {
        if (document.visibilityState === "visible") callback();
      };
      const page = typeof document === "undefined" ? undefined : document;
      addEventListener("online", callback);
      addEventListener("pageshow", callback);
      page?.addEventListener("visibilitychange", visible);
      page?.addEventListener("resume", callback);
      return () => {
        removeEventListener("online", callback);
        removeEventListener("pageshow", callback);
        page?.removeEventListener("visibilitychange", visible);
        page?.removeEventListener("resume", callback);
      };
    },
  };
}
