// @ts-check
/**
 * A headless Chromium for tests of what runs in pages. Plain JavaScript, so that other packages of this repository import
 * this file as it stands; playwright-core is found from here.
 */

import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

import { chromium } from "playwright-core";

/** What Debian, Ubuntu, Fedora and Google call it. */
const NAMES = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];
/** Where `make tools` unpacks it, seen from a folder of the repository. */
const UNPACKED = "target/tools/usr/bin/chromium-headless-shell";

/** @param {string} path */
function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Folders from this one up, since what a compiler makes of this file lies deeper than the file itself. */
function above() {
  const folders = [import.meta.dirname];
  for (let folder = join(import.meta.dirname, ".."); folder !== folders.at(-1); folder = join(folder, "..")) {
    folders.push(folder);
  }
  return folders;
}

/**
 * The path of a Chromium: `CHROMIUM` where it is set, else one of its well-known names, else that of `make tools`;
 * undefined if there is none.
 *
 * @returns {string | undefined}
 * @throws where `AGENT_REACH_TOOLS` is `required` and there is none.
 */
export function chromiumPath() {
  const { CHROMIUM: own, PATH = "", AGENT_REACH_TOOLS: tools } = process.env;
  const known = () => [
    ...PATH.split(delimiter).flatMap((folder) => NAMES.map((name) => join(folder, name))),
    ...above().map((folder) => join(folder, UNPACKED)),
  ];
  const path = (own === undefined || own === "" ? known() : [own]).find(isProgram);
  if (path === undefined && tools === "required") throw new Error("Chromium is not there: make tools, or set CHROMIUM");
  return path;
}

/**
 * Starts the Chromium that `chromiumPath` found; whoever started it closes it.
 *
 * It holds back and freezes hidden pages as it does for users, which Playwright turns off unless told otherwise.
 *
 * @param {string} executablePath
 * @returns {Promise<import("playwright-core").Browser>}
 */
export function startChromium(executablePath) {
  return chromium.launch({
    executablePath,
    ignoreDefaultArgs: [
      "--disable-background-timer-throttling",
      "--disable-backgrounding-occluded-windows",
      "--disable-renderer-backgrounding",
    ],
  });
}
