/** The socket, and the seam where tests and other platforms put another one. */

import { ConnectError } from "../errors.js";
import { CONNECT_PATH } from "../limits.js";

/** TCP, TLS and upgrade together must be done in this time, in milliseconds. */
export const DIAL_TIMEOUT = 10_000;

/** What a socket tells. Nothing more is told after `lost` or `failed`. */
export interface SocketEvents {
  /** The upgrade is done. */
  opened(): void;
  message(message: Uint8Array): void;
  /** A text message came. */
  text(): void;
  /** A ping or a pong came. */
  alive(): void;
  /** What was written has left, so that there is room for more. */
  drained(): void;
  lost(code: number | undefined, reason: string): void;
  /** It never opened. */
  failed(error: ConnectError): void;
}

/** One WebSocket. */
export interface Socket {
  send(message: Uint8Array): void;
  /** What comes between the two leaves in one piece. */
  cork(): void;
  uncork(): void;
  /** Bytes that have not left. */
  readonly buffered: number;
  ping(): void;
  /** Stops, and goes on with, reading; a socket that cannot does nothing. */
  pause(): void;
  resume(): void;
  /** Writes what is buffered, and closes in order. */
  close(code: number): void;
  /** Lets go at once. */
  abort(): void;
}

/** What the SDK needs of the world, so that a test can have another one. */
export interface Environment {
  /** Opens a socket to the hub. */
  dial(url: string, events: SocketEvents): Socket;
  /** Whether sockets can send WebSocket pings. */
  readonly canPing: boolean;
  /** Milliseconds of a clock that never goes back. */
  now(): number;
  /** Calls back once after so many milliseconds; gives what takes that back. */
  timer(ms: number, callback: () => void): () => void;
  /** Calls back soon, when what happens now has happened: so that many messages leave in one piece. */
  soon(callback: () => void): void;
  /** A number from 0 up to, not including, 1. */
  random(): number;
  /** Calls back when the machine, the page or the network woke up; gives what ends that. */
  onWake?(callback: () => void): () => void;
  /** Calls back when the process is told to end; gives what ends that. */
  onSignal?(callback: () => void): () => void;
}

/** What every platform has alike. */
export function common(): Pick<Environment, "now" | "timer" | "random"> {
  return {
    now: () => performance.now(),
    timer(ms, callback) {
      // The longest that timers can: one that is due later is set anew then.
      const timer = setTimeout(callback, Math.min(Math.max(Math.ceil(ms), 0), 2 ** 31 - 1));
      return () => clearTimeout(timer);
    },
    random: () => Math.random(),
  };
}

/**
 * Reads `wss://HOST[:7443][/path]`; the path defaults to `/v1/connect`.
 *
 * @throws ConnectError `config` for anything else.
 */
export function addressOf(text: string): string {
  const wrong = (what: string): ConnectError =>
    new ConnectError("config", `hub address ${JSON.stringify(text)}: ${what}`);
  // `URL` drops a port that is the scheme's own, so that it is looked for in the text.
  const parts = /^(wss?):\/\/(\[[^\]]*\]|[^/:?#@]+)(?::(\d+))?(\/[^?#]*)?$/i.exec(text);
  if (parts === null) throw wrong("must be wss://HOST[:PORT][/PATH], or ws://");
  const [, scheme, host, port, path] = parts;
  const isSecure = scheme!.toLowerCase() === "wss";
  const url = `${isSecure ? "wss" : "ws"}://${host!}:${port ?? (isSecure ? 7443 : 7080)}`;
  if (!URL.canParse(url)) throw wrong("is no URL");
  return url + (path === undefined || path === "/" ? CONNECT_PATH : path);
}
