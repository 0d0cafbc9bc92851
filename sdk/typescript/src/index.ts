/**
 * The client for browsers, and for every runtime with a global `WebSocket`. Who they are is said by a session cookie or
 * an address of the hub's HTTP listener; for certificates see `@agent-reach/client/node`.
 */

import { Agent, type AgentOptions } from "./client/agent.js";
import { browser } from "./transport/browser.js";

export * from "./exports.js";

/**
 * Connects an agent. Resolves when the hub has answered; from then on the connection mends itself.
 *
 * @throws ConnectError when there is no session within `connectTimeoutMs`, or the hub refuses.
 */
export async function connect(options: AgentOptions): Promise<Agent> {
  return new Agent(options, browser()).connect();
}
