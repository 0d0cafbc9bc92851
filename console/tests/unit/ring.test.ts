import assert from "node:assert/strict";
import { test } from "node:test";

import { Ring } from "../../src/state/ring.ts";

test("a ring gives its newest first, and forgets its oldest", () => {
  const ring = new Ring<number>(3);
  assert.deepEqual([...ring], []);
  for (const n of [1, 2, 3]) assert.equal(ring.push(n), undefined);
  assert.deepEqual([...ring], [3, 2, 1]);
  assert.equal(ring.push(4), 1);
  assert.deepEqual([...ring], [4, 3, 2]);
  assert.equal(ring.length, 3);
});
