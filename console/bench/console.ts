/**
 * What the console costs a browser: pages of a hub with many agents and many calls a second, by the processes' own
 * clocks. Prints a table for README.md.
 *
 *     npm run bench                       # 5,000 agents, 500 calls/s, 20 s for each page
 *     AGENTS=1000 CALLS=100 SECONDS=5 npm run bench
 */

import { readFileSync } from "node:fs";

import type { Agent } from "@agent-reach/client/node";
import type { CDPSession } from "playwright-core";

import { browser, open, screenshot, visitor } from "../tests/browser/console.ts";
import { Hub } from "../tests/browser/hub.ts";

const number = (name: string, usual: number): number => Number(process.env[name] ?? usual);
const AGENTS = number("AGENTS", 5000);
const CALLS = number("CALLS", 500);
const SECONDS = number("SECONDS", 20);
const PAGES = (process.env["PAGES"] ?? "agents,calls,capabilities,tasks,agents/fleet-1,overview").split(",");
/** Agents that connect at one time; those that work; how many capabilities there are. */
const AT_ONCE = 16;
/** Agents that share a certificate: a rule of the policy names no more than 1024. */
const CREW = 1000;
const WORKERS = 100;
const KINDS = 200;

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const nameOf = (index: number): string => `fleet-${index}`;
const crewOf = (index: number): string => `crew-${Math.floor(index / CREW)}`;

/** One rule for each crew. */
function rules(): string {
  const crews = new Map<string, string[]>();
  for (let index = 0; index < AGENTS; index += 1) crews.set(crewOf(index), [...(crews.get(crewOf(index)) ?? []), nameOf(index)]);
  const rule = ([crew, ids]: [string, string[]]): string =>
    `[[rules]]\nidentity = "spiffe://agent-reach/agent/${crew}"\nagent_ids = ${JSON.stringify(ids)}\nprovide = ["*"]\ncall = ["*"]\n`;
  return [...crews].map(rule).join("");
}

async function fleet(hub: Hub): Promise<Agent[]> {
  const agents: Agent[] = [];
  let next = 0;
  const connectSome = async (): Promise<void> => {
    for (let index = next++; index < AGENTS; index = next++) {
      const more = { certificate: crewOf(index), service: "fleet", version: `1.${index % 7}.0`, labels: { zone: `z${index % 9}`, rack: `r${index % 50}` } };
      const agent = await hub.agent(nameOf(index), more);
      agent.provide(`fleet.kind-${index % KINDS}.work`, () => ({ ok: true }), { description: "One of many", idempotent: true });
      agents[index] = agent;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, connectSome));
  await Promise.all(agents.map((agent) => agent.sync()));
  return agents;
}

/** Calls that have ended, and whether it is enough. */
const ended = { count: 0, isEnough: false };

/** Calls at an even pace, some of which fail, until it is enough. */
async function load(agents: Agent[]): Promise<void> {
  let made = 0;
  const began = performance.now();
  while (!ended.isEnough) {
    const due = Math.floor(((performance.now() - began) / 1000) * CALLS);
    for (; made < due; made += 1) {
      const caller = agents[made % WORKERS]!;
      const body = { number: made };
      // One of a hundred asks an agent for what it has not.
      const call =
        made % 100 === 0
          ? caller.call("fleet.none", body, { agents: [nameOf(made % 1000)], retries: 0 })
          : caller.call(`fleet.kind-${(made * 7) % KINDS}.work`, body, { policy: "random" });
      const count = (): number => (ended.count += 1);
      call.then(count, count);
    }
    await wait(5);
  }
}

interface Sample {
  /** Seconds of processor time, by kind of process. */
  cpu: Map<string, number>;
  rss: number;
  heap: number;
}

/** Memory that a process has for itself, and its part of what it shares, in MiB. */
function memoryOf(pid: number): number {
  const found = /^Pss: +(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"));
  return Number(found?.[1] ?? 0) / 1024;
}

async function sample(system: CDPSession, page: CDPSession): Promise<Sample> {
  const { processInfo } = await system.send("SystemInfo.getProcessInfo");
  const cpu = new Map<string, number>();
  for (const { type, cpuTime } of processInfo) cpu.set(type, (cpu.get(type) ?? 0) + cpuTime);
  const renderers = processInfo.filter(({ type }) => type === "renderer").map(({ id }) => memoryOf(id));
  const { usedSize } = (await page.send("Runtime.getHeapUsage")) as { usedSize: number };
  return { cpu, rss: Math.max(...renderers), heap: usedSize / 2 ** 20 };
}

const hub = await Hub.start({
  rules: rules(),
  // Heartbeats of this many agents would be this machine's load and not the browser's.
  sections: "[liveness]\nkeepalive_ms = 300000\nsuspect_ms = 1000000\ngone_ms = 2000000",
});
const chromium = await browser();
try {
  const agents = await fleet(hub);
  const loaded = load(agents);
  const page = await open(await visitor(chromium, hub), hub.operator, "#/agents");
  await page.getByText(`${(AGENTS + 1).toLocaleString("en")} of ${(AGENTS + 1).toLocaleString("en")}`).waitFor({ timeout: 60_000 });
  const [system, own] = [await chromium.newBrowserCDPSession(), await page.context().newCDPSession(page)];
  console.log(`${AGENTS} agents, ${CALLS} calls/s asked for, ${SECONDS} s for each page; per cent of one core\n`);
  console.log("| page | calls/s ended | renderer CPU | other Chromium CPU | renderer memory | JavaScript heap |");
  console.log("| --- | --- | --- | --- | --- | --- |");
  for (const place of PAGES) {
    await page.goto(`/#/${place}`);
    await wait(3000);
    const [from, before] = [performance.now(), await sample(system, own)];
    const seen = ended.count;
    await wait(SECONDS * 1000);
    const after = await sample(system, own);
    const calls = ended.count - seen;
    const seconds = (performance.now() - from) / 1000;
    // Whoever suspends this machine for a while suspends the browser too, and makes it look idle.
    if (seconds > SECONDS * 1.5) console.log(`(${place} took ${seconds.toFixed(0)} s: the machine was held up)`);
    const share = (kind: string): number => (((after.cpu.get(kind) ?? 0) - (before.cpu.get(kind) ?? 0)) / seconds) * 100;
    const all = [...after.cpu.keys()].reduce((sum, kind) => sum + share(kind), 0);
    const renderer = share("renderer");
    const cells = [place, (calls / seconds).toFixed(0), `${renderer.toFixed(0)} %`, `${(all - renderer).toFixed(0)} %`];
    await page.screenshot({ path: screenshot(`bench-${place.replace("/", "-")}`) });
    console.log(`| ${[...cells, `${after.rss.toFixed(0)} MiB`, `${after.heap.toFixed(0)} MiB`].join(" | ")} |`);
  }
  ended.isEnough = true;
  await loaded;
} finally {
  await chromium.close();
  await hub.stop();
}
