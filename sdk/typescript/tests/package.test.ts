import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { build } from "esbuild";

import { connect, Directory } from "../src/node.js";
import { Hub } from "./support/hub.js";

const root = fileURLToPath(new URL("../../", import.meta.url));
/** Most bytes of the client in a page, compressed. */
const BUNDLE_MAX = 25_000;

let folder: string;

before(() => {
  folder = mkdtempSync(join(tmpdir(), "agent-reach-package-"));
});
after(() => rmSync(folder, { recursive: true, force: true }));

function npm(...args: string[]): string {
  return execFileSync("npm", args, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
}

async function bundle(contents: string): Promise<Uint8Array> {
  const made = await build({
    stdin: { contents, resolveDir: root },
    bundle: true,
    minify: true,
    format: "esm",
    platform: "browser",
    target: "es2022",
    write: false,
  });
  return made.outputFiles[0]!.contents;
}

test("the client is at most 25,000 bytes in a page, and needs nothing of Node there", async () => {
  const code = await bundle('export { connect } from "./dist/index.js"');
  const size = gzipSync(code, { level: 9 }).length;
  assert.ok(size <= BUNDLE_MAX, `${size} bytes`);
  assert.ok(size > 10_000, "the bundle is not the client");
});

test("END-2 END-3 the packed package is imported from a clean folder, and its examples work as they stand", async () => {
  // What the package needs is taken from here, so that the test needs no network.
  writeFileSync(join(folder, "package.json"), '{"name": "clean", "private": true, "type": "module"}');
  const [packed] = JSON.parse(npm("pack", root, "--json", "--ignore-scripts")) as {
    filename: string;
    files: { path: string }[];
  }[];
  assert.ok(packed!.files.every(({ path }) => /^(dist\/|README.md$|package.json$)/.test(path)));
  const ws = JSON.parse(npm("pack", join(root, "node_modules/ws"), "--json", "--ignore-scripts")) as {
    filename: string;
  }[];
  npm("install", "--offline", "--no-audit", "--no-fund", `./${packed!.filename}`, `./${ws[0]!.filename}`);
  writeFileSync(
    join(folder, "entries.mjs"),
    `import * as browser from "@agent-reach/client";
     import * as node from "@agent-reach/client/node";
     import { FakeHub } from "@agent-reach/client/testing";
     const hub = new FakeHub();
     const [a, b] = [await hub.agent("a"), await hub.agent("b")];
     await a.provide("echo", (ctx) => ctx.input).sync();
     const answer = await b.call("echo", 2n ** 60n);
     console.log(typeof browser.connect, typeof node.connect, answer === 2n ** 60n, a instanceof node.Agent);
     await a.close();
     await b.close();`,
  );
  writeFileSync(
    join(folder, "consumer.ts"),
    `import { connect, type Agent } from "@agent-reach/client";
     import { connect as connectNode } from "@agent-reach/client/node";
     import { FakeHub } from "@agent-reach/client/testing";
     const hub: FakeHub = new FakeHub();
     const agent: Agent = await connectNode({ url: "wss://h", agentId: "a", tls: { ca: "c" } });
     agent.provide<number>("a", async (ctx) => ctx.input + 1, { input: { type: "number" } });
     const n: number = await agent.call<number>("a", 1);
     // @ts-expect-error an option that there is not
     await agent.call("a", 1, { timeout: 1 });
     export { connect, hub, n };`,
  );
  const tsc = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "consumer.ts"];
  execFileSync(join(root, "node_modules/.bin/tsc"), tsc, { cwd: folder, stdio: ["ignore", "inherit", "inherit"] });
  const printed = execFileSync(process.execPath, ["entries.mjs"], { cwd: folder, encoding: "utf8" });
  assert.equal(printed.trim(), "function function true true");
  for (const example of ["agent", "caller"]) {
    cpSync(new URL(`../examples/${example}.js`, import.meta.url), join(folder, `${example}.mjs`));
  }
  const hub = await Hub.start();
  try {
    const env = (name: string): NodeJS.ProcessEnv => {
      const { ca, cert, key } = hub.tls(name);
      return {
        ...process.env,
        AGENT_REACH_HUB: hub.url,
        AGENT_REACH_CA: ca,
        AGENT_REACH_CERT: cert,
        AGENT_REACH_KEY: key,
      };
    };
    const agent = spawn(process.execPath, ["agent.mjs"], {
      cwd: folder,
      env: env("shouter"),
      stdio: ["ignore", "pipe", "inherit"],
    });
    const watcher = await hub.agent("watcher");
    await new Directory(watcher).until((now) => now.offering("text.upper").length === 1);
    const said = execFileSync(process.execPath, ["caller.mjs"], { cwd: folder, env: env("caller"), encoding: "utf8" });
    assert.equal(said, "HELLO\n");
    const ended = once(agent, "exit");
    agent.kill("SIGTERM");
    assert.deepEqual(await ended, [0, null]);
  } finally {
    await hub.stop();
  }
});

test("the first agent of the README has at most 15 lines, the first caller 10, and both are the files that are run", () => {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  for (const [name, most] of [
    ["agent", 15],
    ["caller", 10],
  ] as const) {
    const file = readFileSync(join(root, `examples/${name}.ts`), "utf8");
    assert.ok(file.trimEnd().split("\n").length <= most, name);
    assert.ok(readme.includes("```ts\n" + file + "```"), `README.md has another ${name}`);
  }
});

test("without a hub the process can end: nothing of a failed connect is left behind", async () => {
  await assert.rejects(connect({ url: "ws://127.0.0.1:1", agentId: "a", connectTimeoutMs: 50 }), { kind: "timeout" });
});
