import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { defineConfig } from "vite";

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const root = path("..");

const testsIn = (folder: string): string[] =>
  readdirSync(join(root, folder))
    .filter((name) => /\.test\.tsx?$/.test(name))
    .map((name) => join(folder, name));
const PROGRAMS = [...testsIn("tests/unit"), ...testsIn("tests/browser"), "bench/console.ts"];

/** Tests and the bench as programs for Node, each where its source is but under build/. */
export default defineConfig({
  root,
  resolve: {
    alias: [
      { find: "@agent-reach/client/node", replacement: path("../../sdk/typescript/src/node.ts") },
      { find: "@agent-reach/client", replacement: path("../../sdk/typescript/src/index.ts") },
    ],
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    ssr: true,
    target: "node20",
    outDir: path("../build"),
    emptyOutDir: true,
    rolldownOptions: {
      // Asked for by sources of the SDK, and found from build/ as the console's own.
      external: ["ws", "playwright-core"],
      input: Object.fromEntries(PROGRAMS.map((name) => [name.replace(/\.tsx?$/, ""), join(root, name)])),
      output: { entryFileNames: "[name].js", chunkFileNames: "chunks/[name]-[hash].js" },
    },
  },
});
