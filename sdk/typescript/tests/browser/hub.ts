/** A hub as `agent-reach serve` starts it, which lets pages of one origin in by a token. */

import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { connect, type Agent } from "../../src/node.js";
import { BINARY } from "../support/hub.js";

const POLICY = 'version = 1\n[[rules]]\nidentity = "*"\nprovide = ["*"]\ncall = ["*", "hub.*"]\n';
/**
 * Suspects soon, so that a test sees it, and gives up late, so that a busy machine costs nobody its connection. It may cost
 * a provider a call, though, since nothing is routed to whom the hub suspects: only for a test that is about that.
 */
export const SUSPICIOUS = "keepalive_ms = 150\nsuspect_ms = 500\ngone_ms = 20000";

interface Ready {
  agents: string;
  http: string;
}

/** A hub that runs, until `stop`. */
export class PageHub {
  #agents: Agent[] = [];
  #child: ChildProcess;
  /** Where agents with certificates come. */
  readonly url: string;
  /** Where pages come: host and port. */
  readonly http: string;

  private constructor(
    readonly dir: string,
    child: ChildProcess,
    ready: Ready,
    /** The token of `alice`, who may call everything. */
    readonly token: string,
  ) {
    this.#child = child;
    this.url = ready.agents;
    this.http = new URL(ready.http).host;
  }

  /** `origin`: whose pages may connect. `liveness`: other times than the hub's own. */
  static async start(origin: string, liveness = ""): Promise<PageHub> {
    const dir = mkdtempSync(join(tmpdir(), "agent-reach-page-"));
    const file = (name: string): string => JSON.stringify(join(dir, name));
    execFileSync(BINARY, ["certs", "init", "--dir", dir], { stdio: "ignore" });
    writeFileSync(join(dir, "policy.toml"), POLICY);
    writeFileSync(
      join(dir, "agent-reach.toml"),
      `version = 1
[agents]
listen = "127.0.0.1:0"
cert = ${file("hub.pem")}
key = ${file("hub-key.pem")}
client_ca = ${file("ca.pem")}
[http]
listen = "127.0.0.1:0"
allowed_origins = [${JSON.stringify(origin)}]
[metrics]
listen = "127.0.0.1:0"
[policy]
file = ${file("policy.toml")}
[liveness]
${liveness}
`,
    );
    const add = ["token", "add", "alice", "--role", "operator", "--config", join(dir, "agent-reach.toml")];
    const token = execFileSync(BINARY, add, { encoding: "utf8" }).trim();
    const [child, ready] = await launch(dir, {});
    return new PageHub(dir, child, ready, token);
  }

  /** Connects an agent with a certificate; it is closed when the hub stops. */
  async agent(agentId: string): Promise<Agent> {
    execFileSync(BINARY, ["certs", "issue", agentId, "--dir", this.dir], { stdio: "ignore" });
    const at = (suffix: string): string => join(this.dir, "agents", agentId + suffix);
    const tls = { ca: join(this.dir, "ca.pem"), cert: at(".pem"), key: at("-key.pem") };
    const agent = await connect({ url: this.url, agentId, tls, reconnectMs: [50, 200], log: () => {} });
    this.#agents.push(agent);
    return agent;
  }

  /** Ends the hub's process at once, as a crash would. */
  async kill(): Promise<void> {
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
  }

  /** Starts it again, on the same ports and with the same folder. */
  async restart(): Promise<void> {
    [this.#child] = await launch(this.dir, {
      AGENT_REACH__AGENTS__LISTEN: new URL(this.url).host,
      AGENT_REACH__HTTP__LISTEN: this.http,
    });
  }

  async stop(): Promise<void> {
    await Promise.all(this.#agents.map((agent) => agent.close(0)));
    if (this.#child.exitCode === null && this.#child.signalCode === null) await this.kill();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

async function launch(dir: string, own: NodeJS.ProcessEnv): Promise<[ChildProcess, Ready]> {
  const child = spawn(BINARY, ["serve", "--config", join(dir, "agent-reach.toml")], {
    cwd: dir,
    env: { ...process.env, ...own },
    stdio: ["ignore", "pipe", "ignore"],
  });
  for await (const line of createInterface({ input: child.stdout })) return [child, JSON.parse(line) as Ready];
  throw new Error("the hub ended before it was ready");
}
