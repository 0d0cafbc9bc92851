/** The origin of the pages under test: it serves one page with the client's bundle. */

import { once } from "node:events";
import { createServer, type IncomingMessage, type Server } from "node:http";
import { connect, type AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** No `eval`, nothing inline, nothing from elsewhere: the client needs none of that. */
const POLICY = "default-src 'none'; script-src 'self'; connect-src 'self' ws://127.0.0.1:*";

/** What the page has as `window.client`. */
export type Client = typeof import("../../src/index.js");

async function bundle(): Promise<Uint8Array> {
  const made = await build({
    stdin: { contents: 'import * as client from "./dist/index.js"; window.client = client;', resolveDir: ROOT },
    bundle: true,
    minify: true,
    format: "iife",
    platform: "browser",
    target: "es2022",
    write: false,
  });
  return made.outputFiles[0]!.contents;
}

/** Serves until `close`. */
export class Site {
  readonly origin: string;
  readonly #server: Server;
  readonly #sockets = new Set<Duplex>();
  #hub: { http: string; token: string } | undefined;

  private constructor(server: Server) {
    this.#server = server;
    this.origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on("upgrade", (request, socket) => this.#relay(request, socket));
  }

  static async start(): Promise<Site> {
    const script = await bundle();
    const server = createServer((request, response) => {
      const isScript = request.url === "/client.js";
      response.setHeader("content-security-policy", POLICY);
      response.setHeader("content-type", isScript ? "text/javascript" : "text/html; charset=utf-8");
      response.end(isScript ? script : '<!doctype html><title>page</title><script src="/client.js"></script>');
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new Site(server);
  }

  /**
   * Where the page's agent connects: here, and from here on with the token, since a page cannot give its WebSocket a
   * header.
   */
  relayTo(hub: { http: string; token: string }): string {
    this.#hub = hub;
    return this.origin.replace("http:", "ws:");
  }

  #relay(request: IncomingMessage, page: Duplex): void {
    const { http, token } = this.#hub!;
    const { hostname, port } = new URL(`http://${http}`);
    const hub = connect(Number(port), hostname, () => {
      const lines = [`GET ${request.url!} HTTP/1.1`, `Host: ${http}`, `Authorization: Bearer ${token}`];
      for (const [name, value] of Object.entries(request.headers)) {
        if (name !== "host") lines.push(`${name}: ${String(value)}`);
      }
      hub.write(lines.join("\r\n") + "\r\n\r\n");
      hub.pipe(page).pipe(hub);
    });
    for (const [one, other] of [
      [hub, page],
      [page, hub],
    ] as const) {
      this.#sockets.add(one);
      one.on("error", () => {});
      one.on("close", () => {
        this.#sockets.delete(one);
        other.destroy();
      });
    }
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
