import { expect, test } from "vitest";
import { deltaText, deltaTone } from "./compare";

const plain = (a: number | null, b: number | null) => deltaText({ a, b, form: String });

test("a difference has its sign and its part of what was", () => {
  expect([plain(200, 250), plain(200, 50), plain(0, 3)]).toEqual(["+50 (+25 %)", "−150 (−75 %)", "+3"]);
});

test("nothing is said where nothing differs, or one is not known", () => {
  expect([plain(2, 2), plain(null, 2), plain(2, null), plain(null, null)]).toEqual(["", "", "", ""]);
});

test("more of what is bad is bad, and what is neither has no colour", () => {
  expect(deltaTone({ a: 1, b: 2, isWorse: true })).toBe("bad");
  expect(deltaTone({ a: 2, b: 1, isWorse: true })).toBe("good");
  expect(deltaTone({ a: 1, b: 2, isWorse: null })).toBe("plain");
  expect(deltaTone({ a: null, b: 2, isWorse: true })).toBe("plain");
});
