import { describe, expect, test } from "vitest";
import { duration, shortId, until } from "./format";
import { zone } from "./looks.svelte";
import { ago, between, exact, zoneName } from "./time";
import { childrenOf, opensItself } from "./json";

describe("times for people", () => {
  test("durations change their unit where people do", () => {
    const told = [0, 0.4, 820, 4_200, 64_000, 11_220_000, 200_000_000].map(duration);
    expect(told).toEqual(["0 ms", "0.4 ms", "820 ms", "4.2 s", "1 m 04 s", "3 h 07 m", "2 d 7 h"]);
  });

  test("no duration is told for a time that is not one", () => {
    expect([duration(-1), duration(NaN)]).toEqual(["–", "–"]);
  });

  test("a time has its day, and its zone for those who want to know it", () => {
    zone.current = "utc";
    const at = Date.UTC(2026, 10, 28, 2, 0, 3, 120);
    expect(exact(at)).toBe("Sat 28 Nov 2026 02:00:03.120 UTC");
    expect(zoneName(at)).toBe("UTC");
    expect(between(at, at + 21_000)).toBe("Sat 28 Nov 02:00:03 – 02:00:24");
    expect(between(at, at + 86_400_000)).toBe("Sat 28 Nov 02:00:03 – Sun 29 Nov 02:00:03");
    expect(exact("never")).toBe("");
  });

  test("the past is told relative until a day", () => {
    zone.current = "utc";
    const day = 86_400_000;
    expect([ago(0, 1000), ago(0, 59_000), ago(0, 3_599_000), ago(0, day)]).toEqual([
      "just now",
      "59 s ago",
      "59 m ago",
      "Thu 1 Jan 00:00",
    ]);
  });

  test("the future is told in whole seconds, and is over at its moment", () => {
    expect([until(42_000, 500), until(245_000, 0), until(0, 0), until(0, 1)]).toEqual([
      "in 42 s",
      "in 4 m 05 s",
      "now",
      "now",
    ]);
  });

  test("a long id is told by its end", () => {
    expect(shortId("0195f3a0-0000-7000-8000-00000000abcd")).toBe("…0000abcd");
  });
});

describe("a JSON tree", () => {
  test("opens the outermost value and small ones, never a crowd", () => {
    const row = { a: 1, b: 2 };
    expect(opensItself(Array(1000).fill(row), 0, 1)).toBe(true);
    expect(opensItself(row, 1, 3)).toBe(true);
    expect(opensItself(row, 1, 1000)).toBe(false);
    expect(opensItself("text", 0, 1)).toBe(false);
  });

  test("looks at no more children than are shown", () => {
    expect(childrenOf(Array(1000).fill(0), 50)).toHaveLength(50);
    expect(childrenOf({ a: 1, b: 2, c: 3 }, 2)).toEqual([
      ["a", 1],
      ["b", 2],
    ]);
  });
});
