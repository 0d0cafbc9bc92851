/** The agent of either half of a pair, by the variables that name hub and certificates. */

import { connect, type Agent } from "../src/node.js";

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

/** Connects under this name, and dials again within 200 ms. */
export function agentOf(agentId: string): Promise<Agent> {
  const tls = { ca: variable("AGENT_REACH_CA"), cert: variable("AGENT_REACH_CERT"), key: variable("AGENT_REACH_KEY") };
  return connect({ url: variable("AGENT_REACH_HUB"), agentId, tls, reconnectMs: [50, 200] });
}
