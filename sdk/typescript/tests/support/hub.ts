/** The real hub, as its binary: certificates in a folder of its own, on free ports of loopback. */

import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { connect, type Agent, type NodeOptions } from "../../src/node.js";

/** The hub's binary: `AGENT_REACH_BIN`, else the debug build of this repository. */
export const BINARY =
  process.env["AGENT_REACH_BIN"] ?? fileURLToPath(new URL("../../../../../target/debug/agent-reach", import.meta.url));

interface Ready {
  agents: string;
  http: string;
}

/** A hub that runs, until `stop`. */
export class Hub {
  private agents: Agent[] = [];

  private constructor(
    readonly dir: string,
    private child: ChildProcess,
    readonly url: string,
    readonly http: string,
  ) {}

  static async start(): Promise<Hub> {
    if (!existsSync(BINARY)) throw new Error(`no hub at ${BINARY}: build it, or say where it is in AGENT_REACH_BIN`);
    const dir = mkdtempSync(join(tmpdir(), "agent-reach-"));
    const [child, ready] = await launch(dir, "127.0.0.1:0");
    return new Hub(dir, child, ready.agents, ready.http);
  }

  /** The certificate files of a name, made where there are none. */
  tls(name: string): { ca: string; cert: string; key: string } {
    const file = (suffix: string): string => join(this.dir, "agents", `${name}${suffix}`);
    if (!existsSync(file(".pem")))
      execFileSync(BINARY, ["certs", "issue", name, "--dir", this.dir], { stdio: "ignore" });
    return { ca: join(this.dir, "ca.pem"), cert: file(".pem"), key: file("-key.pem") };
  }

  /** Connects an agent; it is closed when the hub stops. */
  async agent(agentId: string, options: Partial<NodeOptions> = {}): Promise<Agent> {
    // A fleet waits up to a second before it comes back; two agents in a test need not.
    const quick: Partial<NodeOptions> = { reconnectMs: [50, 200], log: () => {} };
    const agent = await connect({ url: this.url, agentId, tls: this.tls(agentId), ...quick, ...options });
    this.agents.push(agent);
    return agent;
  }

  /** Ends the hub's process at once, as a crash would. */
  async kill(): Promise<void> {
    const ended = once(this.child, "exit");
    this.child.kill("SIGKILL");
    await ended;
  }

  /** Tells the hub to drain. */
  async drain(): Promise<void> {
    const ended = once(this.child, "exit");
    this.child.kill("SIGTERM");
    await ended;
  }

  /** Starts it again, on the same port and with the same folder. */
  async restart(): Promise<void> {
    [this.child] = await launch(this.dir, new URL(this.url).host);
  }

  async stop(): Promise<void> {
    await Promise.all(this.agents.map((agent) => agent.close(0)));
    if (this.child.exitCode === null && this.child.signalCode === null) await this.kill();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

async function launch(dir: string, agents: string): Promise<[ChildProcess, Ready]> {
  const args = ["dev", "--dir", dir, "--agents", agents, "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
  const child = spawn(BINARY, args, { stdio: ["ignore", "pipe", "ignore"] });
  for await (const line of createInterface({ input: child.stdout })) return [child, JSON.parse(line) as Ready];
  throw new Error("the hub ended before it was ready");
}
