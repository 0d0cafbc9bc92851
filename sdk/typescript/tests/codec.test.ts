import assert from "node:assert/strict";
import { test } from "node:test";

import * as reference from "@msgpack/msgpack";

import { decode, encode, EncodeError, Ext, ReadError, Timestamp } from "../src/codec/index.js";

const hex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "hex"));
const back = (value: unknown): unknown => decode(encode(value));

test("CODEC-4 integers up to 64 bits come back as they were, as bigint beyond 2^53", () => {
  for (const n of [
    0,
    127,
    128,
    65_536,
    2 ** 32,
    Number.MAX_SAFE_INTEGER,
    -1,
    -33,
    -129,
    -(2 ** 31) - 1,
    Number.MIN_SAFE_INTEGER,
  ]) {
    assert.equal(back(n), n);
    assert.equal(back(BigInt(n)), n);
  }
  for (const n of [2n ** 53n, 86699530287996692n, 2n ** 64n - 1n, -(2n ** 63n), -(2n ** 53n)]) assert.equal(back(n), n);
  assert.equal(decode(hex("cf013404c371025f14")), 86699530287996692n);
  for (const n of [2n ** 64n, -(2n ** 63n) - 1n]) assert.throws(() => encode(n), EncodeError);
});

test("CODEC-4 floats, -0, NaN and infinities come back as they were", () => {
  for (const x of [1.5, -0, Number.NaN, Infinity, -Infinity, 1e300, Number.MIN_VALUE]) assert.ok(Object.is(back(x), x));
});

test("CODEC-4 bytes stay bytes and text stays text", () => {
  assert.deepEqual(encode(hex("00ff80")), hex("c40300ff80"));
  assert.deepEqual(back(hex("00ff80")), hex("00ff80"));
  assert.deepEqual(back(new Uint8Array()), new Uint8Array());
  for (const text of ["", "\0é😀", "x".repeat(300), "é".repeat(70_000)]) assert.equal(back(text), text);
  assert.throws(() => encode("a\ud800"), EncodeError);
  assert.throws(() => decode(hex("a2c328")), ReadError);
});

test("CODEC-4 a map keeps the types of its keys", () => {
  for (const bytes of ["8101a178", "819101c0", "81c40161c0", "82a161010102"]) {
    const value = decode(hex(bytes));
    assert.ok(value instanceof Map);
    assert.deepEqual(encode(value), hex(bytes));
  }
  const record = decode(hex("81a95f5f70726f746f5f5f81a16101")) as object;
  assert.deepEqual(Object.keys(record), ["__proto__"]);
  assert.equal(Object.getPrototypeOf(record), Object.prototype);
});

test("CODEC-4 timestamps are dates, and keep what a date alone would lose", () => {
  for (const date of [new Date(0), new Date("2024-05-01T12:00:00.250Z"), new Date(-1), new Date(8.64e15)]) {
    assert.deepEqual(back(date), date);
  }
  const fine = back(new Timestamp(1_700_000_000n, 123_456_789)) as Timestamp;
  assert.ok(fine instanceof Date && fine instanceof Timestamp);
  assert.equal(fine.getTime(), 1_700_000_000_123);
  assert.deepEqual([fine.seconds, fine.nanoseconds], [1_700_000_000n, 123_456_789]);
  assert.deepEqual(encode(back(new Timestamp(2n ** 60n, 5))), encode(new Timestamp(2n ** 60n, 5)));
  assert.deepEqual(back(new Ext(5, hex("0102"))), new Ext(5, hex("0102")));
});

test("CODEC-3 what promises more than comes, or nests without end, is refused and nothing is reserved", () => {
  for (const bytes of ["ddffffffff", "dfffffffff", "dbffffffff", "c6ffffffff", "c9ffffffff01", "c1", "", "c0c0"]) {
    assert.throws(() => decode(hex(bytes)), ReadError, bytes);
  }
  assert.throws(() => decode(hex("91".repeat(10_000) + "c0")), ReadError);
  assert.throws(() => decode(hex("81a161".repeat(10_000) + "c0")), ReadError);
  const circle: unknown[] = [];
  circle.push(circle);
  assert.throws(() => encode(circle), EncodeError);
});

test("CODEC-3 maps whose keys turn out to be no texts cost no more than their length", () => {
  // {"a": …, 1: nil} in itself: to read each level twice would be 2^400 steps.
  const bytes = hex("82a161".repeat(400) + "c0" + "01c0".repeat(400));
  let depth = 0;
  for (let value = decode(bytes); value instanceof Map; value = value.get("a")) depth += 1;
  assert.equal(depth, 400);
});

test("what has no MessagePack form is refused, and undefined is left out", () => {
  assert.deepEqual(back({ a: undefined, b: [undefined], u: new URL("http://a/") }), { b: [null], u: "http://a/" });
  for (const value of [() => 1, Symbol("x"), new Set([1]), new Date(NaN)])
    assert.throws(() => encode(value), EncodeError);
});

test("another implementation reads what is written here, and is read here", () => {
  const random = seeded(7);
  for (let i = 0; i < 500; i++) {
    const value = anything(random, 4);
    assert.deepEqual(reference.decode(encode(value)), value);
    assert.deepEqual(decode(reference.encode(value)), value);
  }
});

function seeded(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function anything(random: (below: number) => number, depth: number): unknown {
  switch (random(depth > 0 ? 8 : 6)) {
    case 0:
      return random(2 ** 31) - random(2 ** 32);
    case 1:
      return random(1000) / 7 + 0.1;
    case 2:
      return "aé😀\0z".repeat(random(20));
    case 3:
      return random(2) === 1 ? null : random(2) === 1;
    case 4:
      return new Uint8Array(random(300)).fill(random(256));
    case 5:
      return random(2 ** 50);
    case 6:
      return Array.from({ length: random(20) }, () => anything(random, depth - 1));
    default:
      return Object.fromEntries(Array.from({ length: random(20) }, (_, i) => [`k${i}`, anything(random, depth - 1)]));
  }
}
