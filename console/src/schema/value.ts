import type { Field } from "./field.ts";

/** Where in a value something is. */
export type Path = readonly (string | number)[];

const isMap = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** What a form begins with: what the schema suggests, and the frame of what it requires. Nothing is invented. */
export function initialOf(field: Field): unknown {
  if (field.initial !== undefined) return structuredClone(field.initial);
  switch (field.kind) {
    case "object": {
      const value: Record<string, unknown> = {};
      for (const { name, isRequired, field: member } of field.members) {
        if (!isRequired && member.initial === undefined) continue;
        const initial = initialOf(member);
        if (initial !== undefined) Object.defineProperty(value, name, { value: initial, enumerable: true, writable: true, configurable: true });
      }
      return value;
    }
    case "list":
      return [];
    case "text":
      return "";
    case "flag":
      return false;
    case "choice":
      return field.options.length === 1 ? field.options[0] : undefined;
    case "number":
    case "json":
      return undefined;
  }
}

/** The value at a path; undefined where there is none. */
export function at(value: unknown, path: Path): unknown {
  let here = value;
  for (const key of path) {
    if (typeof key === "number") here = Array.isArray(here) ? (here as unknown[])[key] : undefined;
    else here = isMap(here) && Object.hasOwn(here, key) ? here[key] : undefined;
  }
  return here;
}

/** The same value with another one at a path; undefined takes it out. What is on the way and no container becomes one. */
export function withAt(value: unknown, path: Path, next: unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return next;
  if (typeof key === "number") {
    const items: unknown[] = Array.isArray(value) ? [...(value as unknown[])] : [];
    const item = withAt(items[key], rest, next);
    if (item === undefined) items.splice(key, 1);
    else items[key] = item;
    return items;
  }
  // Pairs, since a key may be named __proto__.
  const pairs = new Map(isMap(value) ? Object.entries(value) : []);
  const member = withAt(pairs.get(key), rest, next);
  if (member === undefined) pairs.delete(key);
  else pairs.set(key, member);
  return Object.fromEntries(pairs);
}

/** What is wrong with a value, as far as a form can tell. */
export interface Problem {
  path: Path;
  text: string;
}

/** The place in words: `address.street[2]`. */
export function placeOf(path: Path): string {
  return path.map((key, at) => (typeof key === "number" ? `[${key}]` : at === 0 ? key : `.${key}`)).join("");
}

function lengthProblem(length: number, what: string, least?: number, most?: number): string | undefined {
  if (least !== undefined && length < least) return `at least ${least} ${what}`;
  if (most !== undefined && length > most) return `at most ${most} ${what}`;
  return undefined;
}

function ownProblem(field: Field, value: unknown): string | undefined {
  switch (field.kind) {
    case "object":
      return isMap(value) ? undefined : "has to be an object";
    case "list":
      if (!Array.isArray(value)) return "has to be a list";
      return lengthProblem(value.length, "entries", undefined, field.max);
    case "text":
      if (typeof value !== "string") return "has to be a text";
      return lengthProblem(value.length, "letters", field.least, field.most);
    case "number":
      if (typeof value !== "number" || (field.isInteger && !Number.isInteger(value)))
        return field.isInteger ? "has to be a whole number" : "has to be a number";
      if (field.least !== undefined && value < field.least) return `at least ${field.least}`;
      return field.most !== undefined && value > field.most ? `at most ${field.most}` : undefined;
    case "flag":
      return typeof value === "boolean" ? undefined : "has to be true or false";
    case "choice":
      return field.options.some((option) => JSON.stringify(option) === JSON.stringify(value))
        ? undefined
        : "is none of the choices";
    case "json":
      return undefined;
  }
}

/** What a form sees wrong. The hub checks everything; this only spares a round. */
export function problemsOf(field: Field, value: unknown, path: Path = []): Problem[] {
  const text = ownProblem(field, value);
  if (text !== undefined) return [{ path, text }];
  if (field.kind === "list" && Array.isArray(value))
    return value.flatMap((item, index) => problemsOf(field.item, item, [...path, index]));
  if (field.kind !== "object" || !isMap(value)) return [];
  return field.members.flatMap(({ name, isRequired, field: member }) => {
    const inner = [...path, name];
    if (!Object.hasOwn(value, name)) return isRequired ? [{ path: inner, text: "is required" }] : [];
    return value[name] === null ? [] : problemsOf(member, value[name], inner);
  });
}
