import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";

const FIRST_PAINT_MAX = 200 * 1024;
const files = readdirSync("dist", { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath, entry.name));

test("the first paint costs at most 200 KiB, compressed", () => {
  const sent = files.filter((file) => file.endsWith(".gz"));
  const total = sent.reduce((sum, file) => sum + statSync(file).size, 0);
  assert.ok(sent.length >= 3 && total > 10_000, `${sent.length} files`);
  assert.ok(total <= FIRST_PAINT_MAX, `${total} bytes`);
});

test("every file has a compressed twin, and what lies under assets is named by its content", () => {
  for (const file of files.filter((name) => !name.endsWith(".gz"))) {
    assert.deepEqual(gunzipSync(readFileSync(`${file}.gz`)), readFileSync(file), file);
    if (file !== join("dist", "index.html")) assert.match(file, /^dist\/assets\/[\w-]+-[\w-]{8}\.\w+$/);
  }
});

test("the page has no script or style of its own, and asks nobody else for anything", () => {
  const html = readFileSync(join("dist", "index.html"), "utf8");
  assert.doesNotMatch(html, /<style|<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=/);
  const addresses = [...html.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, address]) => address!);
  assert.ok(addresses.length >= 3);
  for (const address of addresses) assert.match(address, /^\/assets\//);
});
