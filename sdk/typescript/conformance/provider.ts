/**
 * The providing half of a pair: what docs/sdk-behaviour.md asks of it under "Pairs".
 *
 *     AGENT_REACH_HUB=... node build/conformance/provider.js NAME
 */

import { HandlerError, Raw, type Context } from "../src/node.js";
import { agentOf } from "./connect.js";

const agent = await agentOf(process.argv[2] ?? "");
const cancelled = new Set<string>();
const runs = new Map<string, number>();

agent.provide(
  "pair.echo",
  (ctx) => (ctx.contentType === undefined ? ctx.input : new Raw(ctx.input as Uint8Array, ctx.contentType)),
  { idempotent: true },
);

agent.provide("pair.count", async function* (ctx: Context<number>) {
  for (let n = 0; n < ctx.input; n++) yield n;
  return ctx.input;
});

agent.provide("pair.endless", async function* (ctx: Context<{ key: string }>) {
  try {
    for (let n = 0; ; n++) yield n;
  } finally {
    cancelled.add(ctx.input.key);
  }
});

agent.provide("pair.fail", (ctx: Context<{ code: string; message: string; retryable: boolean }>) => {
  const { code, message, retryable } = ctx.input;
  throw new HandlerError(code, message, { retryable });
});

agent.provide("pair.wait", (ctx: Context<{ key: string }>) => {
  const { signal } = ctx;
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => {
      cancelled.add(ctx.input.key);
      reject(signal.reason as Error);
    });
  });
});

agent.provide("pair.cancelled", (ctx: Context<{ key: string }>) => cancelled.has(ctx.input.key));

agent.provide("pair.large", (ctx: Context<number>) => new Uint8Array(ctx.input));

agent.provide("pair.slow", async (ctx: Context<{ key: string; ms: number }>) => {
  const { key, ms } = ctx.input;
  runs.set(key, (runs.get(key) ?? 0) + 1);
  ctx.progress(runs.get(key));
  await new Promise((resolve) => setTimeout(resolve, ms));
  return runs.get(key);
});

await agent.sync();
console.log("ready");
await agent.serve();
