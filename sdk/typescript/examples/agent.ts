import { connect } from "@agent-reach/client/node";

const env = process.env as Record<"AGENT_REACH_HUB" | "AGENT_REACH_CA" | "AGENT_REACH_CERT" | "AGENT_REACH_KEY", string>;
const agent = await connect({
  url: env.AGENT_REACH_HUB,
  agentId: "shouter",
  tls: { ca: env.AGENT_REACH_CA, cert: env.AGENT_REACH_CERT, key: env.AGENT_REACH_KEY },
});
agent.provide<string>("text.upper", (ctx) => ctx.input.toUpperCase(), { idempotent: true, description: "Says it louder" });
console.log((await agent.serve()).message);
