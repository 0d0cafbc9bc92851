import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { defineConfig, type Plugin } from "vite";

const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

/** A compressed twin beside every file that gains by it, so that the hub compresses nothing while it serves. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      const dist = path("dist");
      for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(html|js|css|svg)$/.test(entry.name)) continue;
        const file = join(entry.parentPath, entry.name);
        writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }));
      }
    },
  };
}

const hub = process.env["AGENT_REACH_HTTP"] ?? "http://127.0.0.1:7080";
const token = process.env["AGENT_REACH_TOKEN"];

export default defineConfig({
  // The SDK's sources, and not what its own build makes of them: the console is built by one command.
  resolve: { alias: { "@agent-reach/client": path("../sdk/typescript/src/index.ts") } },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    // Nothing is put into the page itself: the hub's content policy allows files alone.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  plugins: [compressed()],
  server: {
    host: "127.0.0.1",
    proxy: {
      "/v1": {
        target: hub,
        ws: true,
        // The hub looks at both: to it the page is one of its own.
        changeOrigin: true,
        headers: { origin: hub, ...(token === undefined ? {} : { authorization: `Bearer ${token}` }) },
      },
    },
  },
});
