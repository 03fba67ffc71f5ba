import { expect, test } from "vitest";
import { boundsOf, shownEvery, ticksOf } from "./chart";

test("ticks are round numbers around what is drawn, with 0 among them", () => {
  expect(ticksOf(0, 23, 4)).toEqual([0, 10, 20, 30]);
  expect(ticksOf(-3, 4, 4)).toEqual([-4, -2, 0, 2, 4]);
  expect(ticksOf(0, 0, 4)).toEqual([0, 1]);
  const small = ticksOf(0, 0.0042, 4);
  expect(small.at(-1)).toBeGreaterThanOrEqual(0.0042);
});

test("a pile is as high as its parts together", () => {
  const series = [
    { name: "a", values: [1, null, 3] },
    { name: "b", values: [2, 5, 1] },
  ];
  expect(boundsOf(series, true)).toEqual([0, 5]);
  expect(boundsOf(series, false)).toEqual([0, 5]);
  expect(boundsOf([{ name: "a", values: [] }], true)).toEqual([0, 0]);
});

test("labels are left out where they would touch", () => {
  expect(shownEvery(7, 1000, 84)).toBe(1);
  expect(shownEvery(48, 1000, 84)).toBe(5);
});
