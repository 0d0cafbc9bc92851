import assert from "node:assert/strict";
import { test } from "node:test";

import { FiguresByName } from "../../src/state/figures.ts";
import { Histogram } from "../../src/state/histogram.ts";
import { Ring } from "../../src/state/ring.ts";
import { KEPT_SECONDS, Seconds } from "../../src/state/seconds.ts";

test("a ring gives its newest first, and forgets its oldest", () => {
  const ring = new Ring<number>(3);
  assert.deepEqual([...ring], []);
  for (const n of [1, 2, 3]) assert.equal(ring.push(n), undefined);
  assert.deepEqual([...ring], [3, 2, 1]);
  assert.equal(ring.push(4), 1);
  assert.deepEqual([...ring], [4, 3, 2]);
  assert.equal(ring.length, 3);
});

test("a quantile of a histogram is at most a fifth too high, and never too low", () => {
  const times = new Histogram();
  assert.equal(times.quantile(0.5), undefined);
  for (let us = 1; us <= 10_000; us += 1) times.add(us);
  for (const share of [0.5, 0.95, 0.99]) {
    const [is, exact] = [times.quantile(share)!, 10_000 * share];
    assert.ok(is >= exact && is <= exact * 1.2, `${share}: ${is}`);
  }
});

test("times beyond every bucket, and below all of them, are still counted", () => {
  const times = new Histogram();
  for (const us of [-1, 0, 1e15]) times.add(us);
  assert.equal(times.total, 3);
  assert.notEqual(times.quantile(1), undefined);
});

test("seconds without events are there, empty, and those from before the first one are not", () => {
  const seconds = new Seconds();
  assert.deepEqual(seconds.before(5000, 10), []);
  seconds.of(5000).completed += 1;
  seconds.of(8000).completed += 2;
  assert.deepEqual(
    seconds.before(9000, 100).map(({ at, completed }) => [at, completed]),
    [
      [5, 1],
      [6, 0],
      [7, 0],
      [8, 2],
    ],
  );
});

test("a slot that is used again is another second, from nothing", () => {
  const seconds = new Seconds();
  seconds.of(1000).failed += 7;
  assert.equal(seconds.of(1000 + KEPT_SECONDS * 1000).failed, 0);
});

test("a rate counts from when somebody looked, and over a minute at most", () => {
  const by = new FiguresByName(10);
  for (let n = 0; n < 20; n += 1) by.of("work", n * 100).add(n * 100, 1, true);
  assert.equal(by.get("work")?.rate(2000), 10);
  assert.equal(by.get("work")?.rate(50_000), 0.4);
  assert.equal(by.get("work")?.rate(200_000), 0);
});

test("a rate of more than is kept is that of what is kept", () => {
  const by = new FiguresByName(10);
  for (let n = 0; n < 5000; n += 1) by.of("work", n).add(n, 1, true);
  const rate = by.get("work")!.rate(5000);
  assert.ok(rate >= 250 && rate <= 1005, String(rate));
});

test("figures by name are bounded, and forget who was used least recently", () => {
  const by = new FiguresByName(2);
  by.of("a", 0);
  by.of("b", 0);
  by.of("a", 0);
  by.of("c", 0);
  assert.deepEqual([...by.entries()].map(([name]) => name), ["a", "c"]);
});

test("success is the share of the newest calls that went well", () => {
  const by = new FiguresByName(1);
  assert.equal(by.of("work", 0).success, undefined);
  for (const ok of [true, true, true, false]) by.of("work", 0).add(0, 1, ok);
  assert.equal(by.of("work", 0).success, 0.75);
});
