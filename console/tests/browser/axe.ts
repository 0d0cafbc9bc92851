/** What axe-core finds on a page. */

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";

import type { AxeResults } from "axe-core";
import type { Page } from "playwright-core";

const SOURCE = readFileSync(resolve(join("node_modules", "axe-core", "axe.min.js")), "utf8");

/** Serious and critical findings, each in a line. */
export async function findings(page: Page): Promise<string[]> {
  // Handed over by the debugger: the page's own policy lets no other script in.
  await page.evaluate(SOURCE);
  const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: { run(): Promise<AxeResults> } }).axe.run());
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")} ${node.failureSummary ?? ""}`));
}
