import { signal } from "@preact/signals";

import { go } from "../router.ts";

/** Whether the list of keys is shown. */
export const isHelpOpen = signal(false);

/** What the table on the page does with keys; none without a table. */
export interface TableKeys {
  move(by: number): void;
  edge(isEnd: boolean): void;
  open(): void;
  focus(): void;
}
let table: TableKeys | undefined;
let pause: (() => void) | undefined;

/** The table that keys mean while it is shown. Gives what ends that. */
export function useKeysOf(keys: TableKeys): () => void {
  table = keys;
  return () => {
    if (table === keys) table = undefined;
  };
}

/** What `p` does while a page is shown. */
export function onPauseKey(callback: () => void): () => void {
  pause = callback;
  return () => {
    if (pause === callback) pause = undefined;
  };
}

const PAGES: Record<string, string> = { o: "#/overview", a: "#/agents", c: "#/calls", t: "#/tasks", b: "#/capabilities" };
/** How long `g` waits for its second letter, in milliseconds. */
const PREFIX_MS = 1500;
let prefixed = 0;

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null;
}

function escape(event: KeyboardEvent): void {
  if (isHelpOpen.value || document.querySelector("dialog[open]") !== null) return;
  if (isTyping(event.target)) {
    (event.target as HTMLElement).blur();
    table?.focus();
    return;
  }
  const up = document.querySelector<HTMLAnchorElement>("a[data-up]");
  if (up !== null) go(up.getAttribute("href") ?? "");
}

function letter(event: KeyboardEvent): boolean {
  if (prefixed > 0 && event.timeStamp - prefixed < PREFIX_MS) {
    prefixed = 0;
    const page = PAGES[event.key];
    if (page !== undefined) go(page);
    return page !== undefined;
  }
  switch (event.key) {
    case "g":
      prefixed = event.timeStamp;
      return true;
    case "/": {
      const search = document.querySelector<HTMLInputElement>("[data-search]");
      search?.focus();
      search?.select();
      return search !== null;
    }
    case "?":
      isHelpOpen.value = true;
      return true;
    case "p":
      pause?.();
      return pause !== undefined;
    case "j":
      table?.move(1);
      return table !== undefined;
    case "k":
      table?.move(-1);
      return table !== undefined;
    default:
      return false;
  }
}

/** Keys of a table, also where the table itself has the focus. */
export function tableKey(event: KeyboardEvent, keys: TableKeys): boolean {
  switch (event.key) {
    case "ArrowDown":
      keys.move(1);
      return true;
    case "ArrowUp":
      keys.move(-1);
      return true;
    case "PageDown":
      keys.move(20);
      return true;
    case "PageUp":
      keys.move(-20);
      return true;
    case "Home":
      keys.edge(false);
      return true;
    case "End":
      keys.edge(true);
      return true;
    case "Enter":
      keys.open();
      return true;
    default:
      return false;
  }
}

/** Listens for keys on the whole page, from now on. */
export function listen(): void {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      escape(event);
      return;
    }
    if (isTyping(event.target) || document.querySelector("dialog[open]") !== null) return;
    const isFree = event.target === document.body;
    if (letter(event) || (isFree && table !== undefined && tableKey(event, table))) event.preventDefault();
  });
}
