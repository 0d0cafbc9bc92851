import { computed, signal } from "@preact/signals";

/** Where one is: the parts of the path behind `#/`, and what follows `?`. */
export interface Route {
  page: string;
  /** Of one thing: an id or a name. */
  id: string | undefined;
  query: URLSearchParams;
}

/** Reads a hash: `#/agents/ID?status=ready`. What cannot be decoded is taken as it stands. */
export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const slash = path.indexOf("/");
  const page = slash < 0 ? path : path.slice(0, slash);
  const rest = slash < 0 ? "" : path.slice(slash + 1);
  let id: string | undefined = rest === "" ? undefined : rest;
  try {
    id = id === undefined ? undefined : decodeURIComponent(id);
  } catch {
    // A broken escape: nothing has this name, and the page says so.
  }
  return { page: page === "" ? "overview" : page, id, query: new URLSearchParams(query) };
}

/** The hash of a page. */
export function to(page: string, id?: string, query?: Record<string, string>): string {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== "");
  const tail = given.length === 0 ? "" : `?${new URLSearchParams(given).toString()}`;
  return `#/${page}${id === undefined ? "" : `/${encodeURIComponent(id)}`}${tail}`;
}

const hash = signal(typeof location === "undefined" ? "" : location.hash);
if (typeof addEventListener === "function") addEventListener("hashchange", () => (hash.value = location.hash));

/** Where one is now. */
export const route = computed(() => parse(hash.value));

/** Goes there. */
export function go(where: string): void {
  location.hash = where;
}

/** Keeps a filter in the address, without a step in the history for each letter. */
export function keepQuery(query: Record<string, string>): void {
  const { page, id } = route.value;
  const where = to(page, id, query);
  if (where === location.hash) return;
  history.replaceState(null, "", where);
  hash.value = where;
}
