import assert from "node:assert/strict";
import { test } from "node:test";

import { decode } from "../src/codec/index.js";
import {
  decodeToAgent,
  decodeToHub,
  encodePlainCall,
  encodeToAgent,
  encodeToHub,
  FrameError,
  type FrameToAgent,
  type FrameToHub,
} from "../src/frames/index.js";
import { edge } from "./support/edge.js";
import { bytesOf, vectors, type Vector } from "./support/vectors.js";

type Frame = FrameToAgent | FrameToHub;

function read(vector: Vector): Frame {
  return vector.direction === "to_hub" ? decodeToHub(bytesOf(vector)) : decodeToAgent(bytesOf(vector));
}

function write(vector: Vector, frame: Frame): Uint8Array {
  const { kind, header, body } = frame;
  return vector.direction === "to_hub"
    ? encodeToHub(kind as never, header as never, body)
    : encodeToAgent(kind as never, header as never, body);
}

/** Labels are pairs and schemas bytes in a frame; the vectors show maps and values. */
function shown(value: unknown, key = ""): unknown {
  if (value instanceof Uint8Array) return edge(decode(value));
  if (key === "labels" || key === "require" || key === "levels") return Object.fromEntries(value as [string, string][]);
  if (Array.isArray(value)) return value.map((item) => shown(item));
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, shown(item, name)]));
  }
  return edge(value);
}

test("a CALL that says nothing but its capability is written as any other", () => {
  for (const [id, body] of [
    [7, undefined],
    [70_000, new Uint8Array(300)],
  ] as const) {
    const header = { id, request_id: "r-1", keep_ms: 600_000, capability: "a.b" };
    assert.deepEqual(encodePlainCall(id, "r-1", "a.b", body), encodeToHub(10, header, body));
  }
});

const accepted = vectors("accept");
const byId = new Map(accepted.map((vector) => [vector.id, vector]));

test("CODEC-1 every accepted vector is read, and a canonical one is written again byte for byte", () => {
  assert.ok(accepted.length > 100);
  for (const vector of accepted) {
    const frame = read(vector);
    if (vector.canonical === true) assert.deepEqual(write(vector, frame), bytesOf(vector), vector.id);
  }
});

test("CODEC-1 every vector that reads as another one is read like it", () => {
  for (const vector of accepted) {
    if (vector.reads_as === undefined) continue;
    assert.deepEqual(read(vector), read(byId.get(vector.reads_as)!), vector.id);
  }
});

test("CODEC-1 what is read of a vector is the value that the vector shows", () => {
  let compared = 0;
  for (const vector of accepted) {
    if (vector.value === undefined || vector.canonical !== true) continue;
    const [kind, header, body] = vector.value;
    const frame = read(vector);
    const { private: keys, ...rest } = frame.header as unknown as Record<string, unknown>;
    const own = Object.fromEntries((keys ?? []) as [string, Uint8Array][]);
    assert.deepEqual(frame.kind, kind, vector.id);
    assert.deepEqual({ ...(shown(rest) as object), ...(shown(own) as object) }, header, vector.id);
    if ("content_type" in frame.header && !isMsgpack(frame.header.content_type)) continue;
    assert.deepEqual(frame.body === undefined ? null : edge(decode(frame.body)), body, vector.id);
    compared += 1;
  }
  assert.ok(compared > 50);
});

function isMsgpack(contentType: string | undefined): boolean {
  return contentType === undefined || contentType.endsWith("msgpack");
}

test("CODEC-2 every rejected vector is refused with its class, kind, field and id", () => {
  const rejected = vectors("reject");
  assert.ok(rejected.length > 100);
  for (const vector of rejected) {
    const expected = vector.error!;
    assert.throws(
      () => read(vector),
      (error: unknown) => {
        assert.ok(error instanceof FrameError, `${vector.id}: ${String(error)}`);
        assert.equal(error.reason, expected.class, vector.id);
        if (expected.kind !== undefined) assert.deepEqual(edge(error.kind), expected.kind, vector.id);
        if (expected.class === "malformed") {
          assert.equal(error.field, expected.field, vector.id);
          assert.deepEqual(edge(error.id), expected.id, vector.id);
        }
        return true;
      },
      vector.id,
    );
  }
});
