/** The built console in a real browser, at the origin of a real hub. */

import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { extname, join, resolve } from "node:path";

import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";

import { chromiumPath, startChromium } from "../../../sdk/typescript/tests/browser/chromium.mjs";

const DIST = resolve("dist");
const MEDIA: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};
/** What the hub sends with its pages (src/http/console). */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/** A browser; whoever started it closes it. */
export async function browser(): Promise<Browser> {
  const path = chromiumPath();
  if (path === undefined) throw new Error("there is no Chromium: make tools, or set CHROMIUM");
  if (!existsSync(join(DIST, "index.html"))) throw new Error("the console is not built: npm run build");
  return await startChromium(path);
}

/**
 * A browser of nobody's yet. It has the console from the hub; with `CONSOLE_FILES=dist` as it is built now, so that
 * whoever changes the console need not build the hub each time.
 */
export async function visitor(of: Browser, hub: { origin: string }, options: BrowserContextOptions = {}): Promise<BrowserContext> {
  const context = await of.newContext({ baseURL: hub.origin, viewport: { width: 1280, height: 800 }, ...options });
  // Nothing waits for it that goes well, and a machine may be busy.
  context.setDefaultTimeout(60_000);
  if (process.env["CONSOLE_FILES"] === "dist") await serveFiles(context, hub.origin);
  return context;
}

async function serveFiles(context: BrowserContext, origin: string): Promise<void> {
  const isFile = (url: URL): boolean =>
    url.origin === origin && ((url.pathname === "/" && url.search === "") || url.pathname.startsWith("/assets/"));
  await context.route(isFile, async (route) => {
    const { pathname } = new URL(route.request().url());
    const file = join(DIST, pathname === "/" ? "index.html" : pathname);
    const headers = { "content-security-policy": POLICY, "content-type": MEDIA[extname(file)] ?? "application/octet-stream" };
    if (existsSync(file)) await route.fulfill({ body: readFileSync(file), headers });
    else await route.fulfill({ status: 404 });
  });
  // To Chromium a page that is handed to it comes from nowhere, and may not speak to loopback unless somebody allows it.
  await context.grantPermissions(["local-network-access"]);
}

/** What a page complained about: errors of its scripts, and what the content policy held back. */
export function complaints(page: Page): string[] {
  const said: string[] = [];
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("console", (message) => {
    // Chromium tells each lost connection and each 401 here as well.
    if (message.type() === "error" && !/Failed to load resource|WebSocket connection/.test(message.text())) said.push(message.text());
  });
  return said;
}

/** Cookies of those who have logged in before: checking a token is slow on purpose. */
const sessions = new Map<string, Awaited<ReturnType<BrowserContext["cookies"]>>>();

/** A page that is logged in, at one of the console's addresses. */
export async function open(context: BrowserContext, token: string, hash = "#/overview"): Promise<Page> {
  const page = await context.newPage();
  const known = sessions.get(token);
  if (known !== undefined) await context.addCookies(known);
  await page.goto(`/${hash}`);
  if (known === undefined) {
    await logIn(page, token);
    sessions.set(token, await context.cookies());
  } else await isLive(page);
  return page;
}

/** Says the token, and waits for the connection. */
export async function logIn(page: Page, token: string): Promise<void> {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await isLive(page);
}

/** Waits until the page says that it is connected. */
export async function isLive(page: Page): Promise<void> {
  await page.getByRole("status", { name: "Connection" }).getByText("live", { exact: true }).waitFor();
}

/** Where pictures go. */
export function screenshot(name: string): string {
  mkdirSync("screenshots-out", { recursive: true });
  return join("screenshots-out", `${name}.png`);
}
