/** The client for Node: with certificates of the agent's own, and signals of the process. */

import { Agent, type AgentOptions } from "./client/agent.js";
import { node, readTls, type TlsFiles } from "./transport/node.js";

export * from "./exports.js";
export type { TlsFiles } from "./transport/node.js";

/** How an agent is made in Node. */
export interface NodeOptions extends AgentOptions {
  /** Certificate files, for `wss://`. */
  tls?: TlsFiles;
  /** For a hub's HTTP listener, instead of a certificate. */
  token?: string;
}

/**
 * Connects an agent. Resolves when the hub has answered; from then on the connection mends itself.
 *
 * @throws ConnectError when the certificate files cannot be read, there is no session within `connectTimeoutMs`, or the
 * hub refuses.
 */
export async function connect(options: NodeOptions): Promise<Agent> {
  const { tls, token, ...rest } = options;
  // A file that is not there is an error now; one that goes missing later is a failed dial like any other.
  if (tls !== undefined) await readTls(tls);
  return new Agent(rest, node(tls, token)).connect();
}
