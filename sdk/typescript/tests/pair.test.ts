import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Hub } from "./support/hub.js";

const program = (name: string): string => fileURLToPath(new URL(`../conformance/${name}.js`, import.meta.url));

test("PAIR-1 PAIR-2 PAIR-3 PAIR-4 PAIR-5 PAIR-6 PAIR-7 PAIR-8 PAIR-9 both halves of a pair, as programs of their own over a hub that is killed", async () => {
  const hub = await Hub.start();
  const start = (half: string, ...args: [string, ...string[]]) => {
    const { ca, cert, key } = hub.tls(args[0]);
    const env = { ...process.env, AGENT_REACH_HUB: hub.url, AGENT_REACH_CA: ca, AGENT_REACH_CERT: cert, AGENT_REACH_KEY: key };
    return spawn(process.execPath, [program(half), ...args], { env, stdio: ["ignore", "pipe", "inherit"] });
  };
  const provider = start("provider", "pair-provider");
  try {
    await once(provider.stdout, "data");
    const caller = start("caller", "pair-caller", "pair-provider");
    const ended = once(caller, "exit");
    const said: string[] = [];
    for await (const line of createInterface({ input: caller.stdout })) {
      if (line !== "restart") {
        said.push(line);
        continue;
      }
      await hub.kill();
      await hub.restart();
    }
    assert.deepEqual(await ended, [0, null]);
    assert.deepEqual(said, [1, 2, 3, 4, 5, 6, 7, 8, 9].map((n) => `PAIR-${n} ok`));
    const drained = once(provider, "exit");
    provider.kill("SIGTERM");
    assert.deepEqual(await drained, [0, null]);
  } finally {
    provider.kill("SIGKILL");
    await hub.stop();
  }
});
