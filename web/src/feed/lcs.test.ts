import fc from "fast-check";
import { expect, test } from "vitest";
import { commonPlaces } from "./lcs";

/** The textbook algorithm, for short sequences. */
function longest(a: readonly string[], b: readonly string[]): number {
  const rows = Array.from({ length: a.length + 1 }, () => new Array<number>(b.length + 1).fill(0));
  for (let x = a.length - 1; x >= 0; x -= 1)
    for (let y = b.length - 1; y >= 0; y -= 1)
      rows[x]![y] = a[x] === b[y] ? rows[x + 1]![y + 1]! + 1 : Math.max(rows[x + 1]![y]!, rows[x]![y + 1]!);
  return rows[0]![0]!;
}

function expectCommon(a: readonly string[], b: readonly string[], pairs: readonly [number, number][]) {
  let [last_x, last_y] = [-1, -1];
  for (const [x, y] of pairs) {
    expect(a[x]).toBe(b[y]);
    expect(x).toBeGreaterThan(last_x);
    expect(y).toBeGreaterThan(last_y);
    [last_x, last_y] = [x, y];
  }
  expect(last_x).toBeLessThan(a.length);
  expect(last_y).toBeLessThan(b.length);
}

const keys = fc.array(fc.constantFrom("a", "b", "c", "d"), { maxLength: 30 });

test("the common part is one, and no longer one exists", () => {
  fc.assert(
    fc.property(keys, keys, (a, b) => {
      const pairs = commonPlaces(a, b);
      expectCommon(a, b, pairs);
      expect(pairs).toHaveLength(longest(a, b));
    }),
    { numRuns: 500 },
  );
});

test("a sequence has all of itself in common with itself, however long it is", () => {
  const long = Array.from({ length: 50_000 }, (_, n) => String(n % 17));
  expect(commonPlaces(long, long)).toHaveLength(long.length);
});

test("sequences with little in common are done in a short time", () => {
  const a = Array.from({ length: 200_000 }, (_, n) => `a${n % 500}`);
  const b = Array.from({ length: 200_000 }, (_, n) => (n % 50 === 0 ? `a${n % 500}` : `b${n}`));
  // A quadratic comparison would exceed the test's time limit.
  const pairs = commonPlaces(a, b);
  expectCommon(a, b, pairs);
  expect(pairs.length).toBeGreaterThan(10);
});
