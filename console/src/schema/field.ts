/** What a form asks for, made from a JSON Schema. What a form cannot show well is written as JSON, never left out. */

/** One thing that a form asks for. */
export type Field = { title?: string; description?: string; initial?: unknown } & (
  | { kind: "object"; members: Member[] }
  | { kind: "list"; item: Field; max?: number }
  | { kind: "text"; isLong: boolean; format?: string; pattern?: string; least?: number; most?: number }
  | { kind: "number"; isInteger: boolean; least?: number; most?: number }
  | { kind: "flag" }
  | { kind: "choice"; options: unknown[] }
  | { kind: "json"; why: string }
);

/** One key of an object. */
export interface Member {
  name: string;
  isRequired: boolean;
  field: Field;
}

type Json = Record<string, unknown>;

/** How deep a form goes; what lies deeper is written as JSON. References may go round in circles. */
const DEPTH_MAX = 6;
/** Most keys of an object that get an entry of their own. */
const MEMBERS_MAX = 100;

const isMap = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);
const numberOf = (value: unknown): number | undefined => (typeof value === "number" ? value : undefined);
const textOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

/** What a reference inside of the schema points to. */
function target(root: unknown, reference: string): unknown {
  if (!reference.startsWith("#")) return undefined;
  let at: unknown = root;
  for (const part of reference.slice(1).split("/").slice(1)) {
    const key = part.replace(/~1/g, "/").replace(/~0/g, "~");
    at = isMap(at) && Object.hasOwn(at, key) ? at[key] : Array.isArray(at) ? (at as unknown[])[Number(key)] : undefined;
  }
  return at;
}

/** A schema with its reference followed, and with an "or nothing" taken off: an entry may be left out anyway. */
function plain(schema: unknown, root: unknown): Json | undefined {
  let at: unknown = schema;
  for (let step = 0; step < DEPTH_MAX && isMap(at); step += 1) {
    const { $ref, allOf, anyOf, oneOf, ...rest } = at;
    if (typeof $ref === "string") {
      const found = target(root, $ref);
      at = isMap(found) ? { ...found, ...rest } : undefined;
      continue;
    }
    if (Array.isArray(allOf) && allOf.length === 1 && isMap(allOf[0])) {
      at = { ...allOf[0], ...rest };
      continue;
    }
    const either = Array.isArray(anyOf) ? anyOf : Array.isArray(oneOf) ? oneOf : undefined;
    const some = (either as unknown[] | undefined)?.filter((one) => !isMap(one) || one["type"] !== "null");
    if (some?.length === 1 && isMap(some[0])) {
      at = { ...some[0], ...rest };
      continue;
    }
    return at;
  }
  return undefined;
}

function typeOf(schema: Json): string | undefined {
  const { type } = schema;
  const names = (Array.isArray(type) ? type : [type]).filter((name) => name !== "null");
  if (names.length === 1 && typeof names[0] === "string") return names[0];
  if (type === undefined && isMap(schema["properties"])) return "object";
  return undefined;
}

/** The values of which one is to be chosen, where the schema lists them. */
function optionsOf(schema: Json): unknown[] | undefined {
  if (Array.isArray(schema["enum"])) return schema["enum"] as unknown[];
  if (Object.hasOwn(schema, "const")) return [schema["const"]];
  const either = schema["oneOf"] ?? schema["anyOf"];
  if (!Array.isArray(either)) return undefined;
  const values = either.map((one) => (isMap(one) ? optionsOf(one) : undefined));
  return values.every((some) => some !== undefined) && values.length > 0 ? values.flat() : undefined;
}

function objectOf(schema: Json, root: unknown, depth: number): Field {
  const properties = isMap(schema["properties"]) ? Object.entries(schema["properties"]) : [];
  if (properties.length === 0) return { kind: "json", why: "any keys" };
  if (properties.length > MEMBERS_MAX) return { kind: "json", why: `${properties.length} keys` };
  const required = new Set(Array.isArray(schema["required"]) ? (schema["required"] as unknown[]) : []);
  const members = properties.map(([name, member]) => ({
    name,
    isRequired: required.has(name),
    field: fieldOf(member, root, depth + 1),
  }));
  return { kind: "object", members };
}

function kindOf(schema: Json, root: unknown, depth: number): Field {
  const options = optionsOf(schema);
  if (options !== undefined) return { kind: "choice", options };
  const least = numberOf(schema["minimum"]);
  const most = numberOf(schema["maximum"]);
  switch (typeOf(schema)) {
    case "object":
      return objectOf(schema, root, depth);
    case "array": {
      const max = numberOf(schema["maxItems"]);
      const item = fieldOf(schema["items"], root, depth + 1);
      return { kind: "list", item, ...(max === undefined ? {} : { max }) };
    }
    case "string": {
      const format = textOf(schema["format"]);
      const pattern = textOf(schema["pattern"]);
      const [shortest, longest] = [numberOf(schema["minLength"]), numberOf(schema["maxLength"])];
      return {
        kind: "text",
        isLong: (longest ?? 0) > 200,
        ...(format === undefined ? {} : { format }),
        ...(pattern === undefined ? {} : { pattern }),
        ...(shortest === undefined ? {} : { least: shortest }),
        ...(longest === undefined ? {} : { most: longest }),
      };
    }
    case "integer":
    case "number": {
      const isInteger = typeOf(schema) === "integer";
      const bounds = { ...(least === undefined ? {} : { least }), ...(most === undefined ? {} : { most }) };
      return { kind: "number", isInteger, ...bounds };
    }
    case "boolean":
      return { kind: "flag" };
    default:
      return { kind: "json", why: "several kinds of values" };
  }
}

/** What a form asks for, for a schema. */
export function fieldOf(schema: unknown, root: unknown = schema, depth = 0): Field {
  if (schema === undefined || schema === true) return { kind: "json", why: "anything" };
  const at = plain(schema, root);
  if (at === undefined || depth > DEPTH_MAX) return { kind: "json", why: "too deep for a form" };
  const title = textOf(at["title"]);
  const description = textOf(at["description"]);
  const examples = at["examples"];
  const initial = at["default"] ?? (Array.isArray(examples) ? (examples as unknown[])[0] : undefined);
  return {
    ...kindOf(at, root, depth),
    ...(title === undefined ? {} : { title }),
    ...(description === undefined ? {} : { description }),
    ...(initial === undefined ? {} : { initial }),
  };
}
