import assert from "node:assert/strict";
import { test } from "node:test";

import { parse, to } from "../../src/router.ts";
import { bytes, micros, millis, rate, share, span } from "../../src/ui/format.ts";
import { json, oneLine } from "../../src/ui/json.ts";

test("an address gives back the id and the filter that it was made of", () => {
  const hash = to("agents", "a/b?c#d %", { q: "x y&z", status: "" });
  const { page, id, query } = parse(hash);
  assert.deepEqual([page, id, query.get("q"), query.get("status")], ["agents", "a/b?c#d %", "x y&z", null]);
});

test("an address that nobody made is still a page", () => {
  assert.deepEqual([parse("").page, parse("#/").page, parse("#/agents/").id], ["overview", "overview", undefined]);
  assert.equal(parse("#/agents/%E0%A4%A").id, "%E0%A4%A");
});

test("times are told in the unit that fits them", () => {
  assert.deepEqual([micros(0), micros(999), micros(1500), micros(2e6)], ["0 µs", "999 µs", "1.5 ms", "2.00 s"]);
  assert.deepEqual([millis(0), millis(12.4), millis(61_000), millis(undefined)], ["<1 ms", "12 ms", "1 min 1 s", "–"]);
  assert.deepEqual([span(-5), span(3_600_000), span(200_000_000)], ["0 s", "1 h 0 min", "2 d 7 h"]);
});

test("a share that is not all never looks like all, and one that is not nothing never like nothing", () => {
  assert.deepEqual([share(1), share(0.99999), share(0.5), share(0.001), share(0)], ["100 %", "99.9 %", "50 %", "0.1 %", "0 %"]);
  assert.deepEqual([rate(0), rate(0.001), rate(3.21), rate(1234)], ["0", "<0.1", "3.2", "1,234"]);
  assert.deepEqual([bytes(0), bytes(1536), bytes(50 * 2 ** 20)], ["0 B", "1.5 KiB", "50 MiB"]);
});

test("what JSON cannot say is written as the hub writes it", () => {
  const value = new Map<unknown, unknown>([
    ["big", 2n ** 60n],
    ["bytes", new Uint8Array([1, 2])],
    ["at", new Date(0)],
  ]);
  assert.deepEqual(JSON.parse(json(value)), {
    big: { $int: "1152921504606846976" },
    bytes: { $bin: "AQI=" },
    at: { $time: "1970-01-01T00:00:00.000Z" },
  });
  assert.deepEqual([json(undefined), oneLine("as it is"), oneLine({ a: 1 })], ["null", "as it is", '{"a":1}']);
});
