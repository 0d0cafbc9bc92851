/** The real hub, as its binary: certificates, tokens and configuration in a folder of its own, on ports of loopback. */

import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

import { connect, type Agent, type NodeOptions } from "@agent-reach/client/node";

/** The hub's binary: `AGENT_REACH_BIN`, else the debug build of this repository. npm runs in the console's folder. */
export const BINARY = process.env["AGENT_REACH_BIN"] ?? resolve("../target/debug/agent-reach");

const OPEN = `[[rules]]
identity = "*"
provide = ["*"]
call = ["*", "hub.*"]
`;

/** How a hub differs from the usual one. */
export interface HubOptions {
  /** Rules that go before the one by which everybody may do everything under the own name. */
  rules?: string;
  /** Further sections of the configuration. */
  sections?: string;
}

function configuration(agents: string, http: string, sections: string): string {
  return `version = 1
[agents]
listen = "${agents}"
cert = "hub.pem"
key = "hub-key.pem"
client_ca = "ca.pem"
drain_ms = 0
[http]
listen = "${http}"
[policy]
file = "policy.toml"
[tracing]
log = "warn"
${sections}
`;
}

interface Ready {
  agents: string;
  http: string;
  console: string | null;
}

/** A hub that runs until `stop`. */
export class Hub {
  readonly #agents: Agent[] = [];
  #child: ChildProcess;

  private constructor(
    readonly dir: string,
    child: ChildProcess,
    /** Where agents connect. */
    readonly url: string,
    /** Where browsers connect: an origin. */
    readonly origin: string,
    readonly operator: string,
    readonly viewer: string,
  ) {
    this.#child = child;
  }

  /** A hub with an operator `ops` and a viewer `eve`. */
  static async start({ rules = "", sections = "" }: HubOptions = {}): Promise<Hub> {
    if (!existsSync(BINARY)) throw new Error(`no hub at ${BINARY}: build it, or say where it is in AGENT_REACH_BIN`);
    const dir = mkdtempSync(join(tmpdir(), "agent-reach-console-"));
    execFileSync(BINARY, ["certs", "init", "--dir", dir], { stdio: "ignore" });
    writeFileSync(join(dir, "policy.toml"), `version = 1\n${rules}\n${OPEN}`);
    configure(dir, "127.0.0.1:0", "127.0.0.1:0", sections);
    const [operator, viewer] = [token(dir, "ops", "operator"), token(dir, "eve", "viewer")];
    const [child, ready] = await launch(serve(dir));
    configure(dir, new URL(ready.agents).host, new URL(ready.http).host, sections);
    return new Hub(dir, child, ready.agents, ready.http, operator, viewer);
  }

  #tls(name: string): { ca: string; cert: string; key: string } {
    const file = (suffix: string): string => join(this.dir, "agents", `${name}${suffix}`);
    if (!existsSync(file(".pem")))
      execFileSync(BINARY, ["certs", "issue", name, "--dir", this.dir], { stdio: "ignore" });
    return { ca: join(this.dir, "ca.pem"), cert: file(".pem"), key: file("-key.pem") };
  }

  /** Connects an agent, which is closed when the hub stops. */
  async agent(agentId: string, options: Partial<NodeOptions> & { certificate?: string } = {}): Promise<Agent> {
    const tls = this.#tls(options.certificate ?? agentId);
    const agent = await connect({ url: this.url, agentId, tls, reconnectMs: [50, 200], log: () => undefined, ...options });
    this.#agents.push(agent);
    return agent;
  }

  /** Ends the hub's process at once, as a crash would. */
  async kill(): Promise<void> {
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
  }

  /** Stops every sign of life for as long as it is asked to, as a machine that hangs does. */
  freeze(isFrozen: boolean): void {
    this.#child.kill(isFrozen ? "SIGSTOP" : "SIGCONT");
  }

  /** Starts it again, on the same ports and with the same folder. */
  async restart(): Promise<void> {
    [this.#child] = await launch(serve(this.dir));
  }

  async stop(): Promise<void> {
    await Promise.all(this.#agents.map((agent) => agent.close(0)));
    if (this.#child.exitCode === null && this.#child.signalCode === null) await this.kill();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

function configure(dir: string, agents: string, http: string, sections: string): void {
  writeFileSync(join(dir, "agent-reach.toml"), configuration(agents, http, sections));
}

const serve = (dir: string): string[] => ["serve", "--config", join(dir, "agent-reach.toml")];

function token(dir: string, name: string, role: string): string {
  const args = ["token", "add", name, "--role", role, "--config", join(dir, "agent-reach.toml")];
  return execFileSync(BINARY, args, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }).trim();
}

/** A development hub, with the link that it prints. */
export interface Development {
  origin: string;
  link: string;
  stop: () => Promise<void>;
}

/** Starts one. */
export async function development(): Promise<Development> {
  const dir = mkdtempSync(join(tmpdir(), "agent-reach-console-"));
  const free = "127.0.0.1:0";
  const [child, { http, console: link }] = await launch(["dev", "--dir", dir, "--agents", free, "--http", free, "--metrics", free]);
  if (link === null) throw new Error("the hub prints no link");
  const stop = async (): Promise<void> => {
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
    rmSync(dir, { recursive: true, force: true });
  };
  return { origin: http, link, stop };
}

async function launch(args: string[]): Promise<[ChildProcess, Ready]> {
  const child = spawn(BINARY, args, { stdio: ["ignore", "pipe", process.env["AGENT_REACH_LOG"] === undefined ? "ignore" : "inherit"] });
  for await (const line of createInterface({ input: child.stdout })) return [child, JSON.parse(line) as Ready];
  throw new Error("the hub ended before it was ready");
}
