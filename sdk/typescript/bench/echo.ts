/**
 * Echo calls through the hub, caller and provider in this one process, each with its own connection over mutual TLS.
 *
 *     AGENT_REACH_BIN=../../target/release/agent-reach npm run bench -- [SECONDS] [IN_FLIGHT]
 */

import { Hub } from "../tests/support/hub.js";

const seconds = Number(process.argv[2] ?? 5);
const inFlight = Number(process.argv[3] ?? 64);

const hub = await Hub.start();
try {
  const provider = await hub.agent("provider", { maxConcurrency: 1024 });
  const caller = await hub.agent("caller");
  await provider.provide("echo", (ctx) => ctx.input).sync();
  const body = { text: "x".repeat(64), n: 7 };
  let calls = 0;
  const run = async (until: number): Promise<void> => {
    while (performance.now() < until) {
      await caller.call("echo", body);
      calls += 1;
    }
  };
  const measure = async (ms: number): Promise<number> => {
    calls = 0;
    const start = performance.now();
    await Promise.all(Array.from({ length: inFlight }, () => run(start + ms)));
    return (calls * 1000) / (performance.now() - start);
  };
  await measure(1000);
  const cpu = process.cpuUsage();
  const rate = await measure(seconds * 1000);
  const used = process.cpuUsage(cpu);
  const perCall = (used.user + used.system) / calls;
  console.log(
    `${rate.toFixed(0)} echo calls/s, ${inFlight} in flight; ${perCall.toFixed(1)} us of this process for each`,
  );
} finally {
  await hub.stop();
}
