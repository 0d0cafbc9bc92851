import { connect } from "@agent-reach/client/node";

const env = process.env as Record<"AGENT_REACH_HUB" | "AGENT_REACH_CA" | "AGENT_REACH_CERT" | "AGENT_REACH_KEY", string>;
const tls = { ca: env.AGENT_REACH_CA, cert: env.AGENT_REACH_CERT, key: env.AGENT_REACH_KEY };
const agent = await connect({ url: env.AGENT_REACH_HUB, agentId: "caller", tls });
console.log(await agent.call<string>("text.upper", "hello", { waitForAgentMs: 5000 }));
await agent.close();
