import assert from "node:assert/strict";
import { test } from "node:test";

import { fieldOf } from "../../src/schema/field.ts";
import { at, initialOf, placeOf, problemsOf, withAt } from "../../src/schema/value.ts";

const ORDER = {
  type: "object",
  required: ["customer", "lines"],
  properties: {
    customer: { type: "string", minLength: 2, description: "Who pays" },
    lines: { type: "array", maxItems: 3, items: { $ref: "#/$defs/line" } },
    express: { type: "boolean" },
    currency: { enum: ["EUR", "USD"], default: "EUR" },
    note: { anyOf: [{ type: "string" }, { type: "null" }] },
  },
  $defs: {
    line: { type: "object", required: ["sku"], properties: { sku: { type: "string" }, count: { type: "integer", minimum: 1 } } },
  },
};

function memberOf(schema: unknown, name: string): ReturnType<typeof fieldOf> {
  const field = fieldOf(schema);
  assert.equal(field.kind, "object");
  return field.members.find((member) => member.name === name)!.field;
}

test("each kind of value gets the entry that fits it", () => {
  assert.deepEqual(memberOf(ORDER, "customer"), { kind: "text", isLong: false, least: 2, description: "Who pays" });
  assert.deepEqual(memberOf(ORDER, "express"), { kind: "flag" });
  assert.deepEqual(memberOf(ORDER, "currency"), { kind: "choice", options: ["EUR", "USD"], initial: "EUR" });
  assert.deepEqual(memberOf(ORDER, "note"), { kind: "text", isLong: false });
  const lines = memberOf(ORDER, "lines");
  assert.equal(lines.kind, "list");
  assert.deepEqual([lines.max, lines.item.kind], [3, "object"]);
});

test("what a form cannot show is written as JSON, and says why", () => {
  for (const schema of [undefined, true, false, "nonsense", {}, { type: ["string", "number"] }, { type: "object" }, { $ref: "#/nowhere" }])
    assert.equal(fieldOf(schema).kind, "json", JSON.stringify(schema));
});

test("a schema that refers to itself ends", () => {
  const tree = { $ref: "#/$defs/node", $defs: { node: { type: "object", properties: { left: { $ref: "#/$defs/node" } } } } };
  assert.equal(fieldOf(tree).kind, "object");
  const circle = { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } };
  assert.equal(fieldOf(circle).kind, "json");
});

test("a value begins with what the schema requires and suggests, and no more", () => {
  assert.deepEqual(initialOf(fieldOf(ORDER)), { customer: "", lines: [], currency: "EUR" });
  assert.deepEqual(initialOf(fieldOf({ type: "string", examples: ["hello"] })), "hello");
  assert.equal(initialOf(fieldOf({ type: "integer" })), undefined);
});

test("a value changes at its place, and everything beside it stays", () => {
  const value = { a: [1, { b: 2 }], c: 3 };
  assert.deepEqual(withAt(value, ["a", 1, "b"], 5), { a: [1, { b: 5 }], c: 3 });
  assert.deepEqual(withAt(value, ["a", 0], undefined), { a: [{ b: 2 }], c: 3 });
  assert.deepEqual(withAt(undefined, ["x", 0, "y"], 1), { x: [{ y: 1 }] });
  assert.deepEqual(value, { a: [1, { b: 2 }], c: 3 });
  assert.equal(at(value, ["a", 1, "b"]), 2);
  assert.equal(at(value, ["c", "d", 7]), undefined);
});

test("keys that JavaScript has a meaning for are keys like any other", () => {
  const schema = JSON.parse('{"type":"object","required":["__proto__"],"properties":{"__proto__":{"type":"string"},"constructor":{"type":"string"}}}') as unknown;
  const value = initialOf(fieldOf(schema));
  assert.deepEqual(Object.keys(value as object), ["__proto__"]);
  assert.equal(({} as Record<string, unknown>)["polluted"], undefined);
  const changed = withAt(value, ["__proto__"], "x") as object;
  assert.deepEqual(Object.entries(changed), [["__proto__", "x"]]);
  assert.equal(at({}, ["constructor"]), undefined);
});

test("a form says what is wrong, and where", () => {
  const field = fieldOf(ORDER);
  const told = (value: unknown): string[] => problemsOf(field, value).map(({ path, text }) => `${placeOf(path)}: ${text}`);
  assert.deepEqual(told({ customer: "Ann", lines: [{ sku: "1", count: 2 }] }), []);
  assert.deepEqual(told({ customer: "A", lines: [{ count: 0 }], currency: "GBP" }), [
    "customer: at least 2 letters",
    "lines[0].sku: is required",
    "lines[0].count: at least 1",
    "currency: is none of the choices",
  ]);
  assert.deepEqual(told({}), ["customer: is required", "lines: is required"]);
  assert.deepEqual(told(7), [": has to be an object"]);
});
