/** The WebSocket of Node, over TLS with a certificate of the agent's own. */

import { readFile } from "node:fs/promises";
import { isIP, connect as tcpConnect, type Socket as TcpSocket } from "node:net";
import { connect as tlsConnect } from "node:tls";

import { WebSocket } from "ws";

import { ConnectError } from "../errors.js";
import { SUBPROTOCOL_MSGPACK } from "../limits.js";
import { common, DIAL_TIMEOUT, type Environment, type Socket, type SocketEvents } from "./index.js";

/** Largest message taken from a hub. Its own limit is smaller; this only guards against a broken one. */
const MESSAGE_BYTES_MAX = 64 * 1024 * 1024;

/** Certificates as PEM files. All are read anew at each connect, so that renewed ones need no restart. */
export interface TlsFiles {
  /** Who signed the hub's certificate. */
  ca: string;
  /** The agent's own certificate, with those between it and its CA. */
  cert?: string;
  /** Its key. */
  key?: string;
}

interface Pem {
  ca?: Uint8Array;
  cert?: Uint8Array;
  key?: Uint8Array;
}

/** Reads the files. @throws ConnectError `tls` */
export async function readTls(files: TlsFiles): Promise<Pem> {
  try {
    const pem: Pem = { ca: await readFile(files.ca) };
    if (files.cert !== undefined) pem.cert = await readFile(files.cert);
    if (files.key !== undefined) pem.key = await readFile(files.key);
    return pem;
  } catch (error) {
    throw new ConnectError("tls", (error as Error).message);
  }
}

class NodeSocket implements Socket {
  #tcp: TcpSocket | undefined;
  #socket: WebSocket | undefined;
  #events: SocketEvents | undefined;
  #isOpen = false;
  readonly #timer: NodeJS.Timeout;

  constructor(url: string, files: TlsFiles | undefined, token: string | undefined, events: SocketEvents) {
    this.#events = events;
    this.#timer = setTimeout(
      () => this.#fail(new ConnectError("io", `no connection within ${DIAL_TIMEOUT} ms`)),
      DIAL_TIMEOUT,
    );
    void this.#open(new URL(url), files, token);
  }

  async #open(url: URL, files: TlsFiles | undefined, token: string | undefined): Promise<void> {
    try {
      const pem = url.protocol === "wss:" && files !== undefined ? await readTls(files) : {};
      if (this.#events !== undefined) this.#upgrade(url, pem, token);
    } catch (error) {
      this.#fail(error instanceof ConnectError ? error : new ConnectError("tls", (error as Error).message));
    }
  }

  #upgrade(url: URL, pem: Pem, token: string | undefined): void {
    const host = url.hostname.replace(/^\[|\]$/g, "");
    const port = Number(url.port);
    // Small frames must not wait for an acknowledgement; batches are made by whoever writes.
    const plain = (): TcpSocket => tcpConnect({ host, port, noDelay: true });
    const secure = (): TcpSocket =>
      tlsConnect({ host, port, noDelay: true, ...pem, ...(isIP(host) === 0 ? { servername: host } : {}) } as never);
    const socket = new WebSocket(url.href, SUBPROTOCOL_MSGPACK, {
      perMessageDeflate: false,
      maxPayload: MESSAGE_BYTES_MAX,
      skipUTF8Validation: true,
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      createConnection: (): TcpSocket => {
        this.#tcp = url.protocol === "wss:" ? secure() : plain();
        return this.#tcp;
      },
    });
    this.#socket = socket;
    socket.on("open", () => this.#opened());
    socket.on("message", (data: Buffer, isBinary: boolean) => {
      if (isBinary) this.#events?.message(data);
      else this.#events?.text();
    });
    socket.on("ping", () => this.#events?.alive());
    socket.on("pong", () => this.#events?.alive());
    socket.on("unexpected-response", (_, response) => {
      const status = response.statusCode ?? 0;
      this.#fail(new ConnectError("http", `the upgrade was refused with HTTP ${status}`, status));
    });
    socket.on("error", (error) => this.#failed(error));
    socket.on("close", (code, reason) =>
      this.#end()?.lost(code === 1005 || code === 1006 ? undefined : code, reason.toString()),
    );
  }

  #opened(): void {
    clearTimeout(this.#timer);
    this.#isOpen = true;
    this.#tcp?.on("drain", () => this.#events?.drained());
    this.#events?.opened();
  }

  #failed(error: Error): void {
    // Of an open socket `close` follows.
    if (this.#isOpen) return;
    const { code = "" } = error as NodeJS.ErrnoException;
    const isTls = /^(ERR_SSL|ERR_TLS|CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|ERR_OSSL)/.test(code);
    this.#fail(new ConnectError(isTls ? "tls" : /subprotocol/i.test(error.message) ? "config" : "io", error.message));
  }

  #fail(error: ConnectError): void {
    this.#end()?.failed(error);
    this.#socket?.terminate();
  }

  /** No further events. */
  #end(): SocketEvents | undefined {
    clearTimeout(this.#timer);
    const events = this.#events;
    this.#events = undefined;
    return events;
  }

  send(message: Uint8Array): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(message);
  }

  cork(): void {
    this.#tcp?.cork();
  }

  uncork(): void {
    this.#tcp?.uncork();
  }

  get buffered(): number {
    return this.#tcp?.writableLength ?? 0;
  }

  ping(): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.ping();
  }

  pause(): void {
    this.#socket?.pause();
  }

  resume(): void {
    this.#socket?.resume();
  }

  close(code: number): void {
    this.#socket?.close(code);
  }

  abort(): void {
    this.#end();
    this.#socket?.terminate();
  }
}

/** The environment of a Node process. */
export function node(files: TlsFiles | undefined, token: string | undefined): Environment {
  return {
    ...common(),
    canPing: true,
    dial: (url, events) => new NodeSocket(url, files, token, events),
    // After all that this turn of the loop reads: what it makes leaves in one piece.
    soon: (callback) => void setImmediate(callback),
    onSignal(callback) {
      process.on("SIGTERM", callback);
      process.on("SIGINT", callback);
      return () => {
        process.off("SIGTERM", callback);
        process.off("SIGINT", callback);
      };
    },
  };
}
