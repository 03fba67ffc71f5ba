import { expect, test } from "vitest";
import type { QueryResult } from "../api/sql";
import { zone } from "../ui/looks.svelte";
import { drawnOf, splitOf } from "./sqlchart";

zone.current = "utc";

const result = (rows: unknown[][]): QueryResult =>
  ({
    columns: [
      { name: "day", type: "timestamptz" },
      { name: "agent", type: "text" },
      { name: "runs", type: "int8" },
    ],
    rows,
    is_truncated: false,
    elapsed_ms: 1,
  }) as QueryResult;

const byDay = result([
  ["2026-11-28 00:00:00+00", "planner", 4],
  ["2026-11-28 00:00:00+00", "coder", 1],
  ["2026-11-25 00:00:00+00", "planner", 2],
]);

test("times are an axis of time, with the days of which there is no row, and each agent is a series", () => {
  expect(splitOf(byDay, 0, [0, 1])).toBe(1);
  expect(drawnOf(byDay, 0, 2, 1)).toEqual({
    labels: ["25 Nov", "28 Nov"],
    series: [
      { name: "planner", values: [2, 4] },
      { name: "coder", values: [null, 1] },
    ],
    left_out: 0,
  });
  const more = result([...byDay.rows, ["2026-11-26 00:00:00+00", "coder", 7]]);
  expect(drawnOf(more, 0, 2, 1).labels).toEqual(["25 Nov", "26 Nov", "27 Nov", "28 Nov"]);
  expect(drawnOf(more, 0, 2, 1).series[1]).toEqual({ name: "coder", values: [null, 7, null, 1] });
});

test("days of UTC, dates and times without a zone are told as they are, in whatever zone times are told", () => {
  const labels = (type: string, ...times: string[]) => {
    const { columns, rows } = result(times.map((time) => [time, "planner", 1]));
    columns[0] = { name: "day", type };
    return drawnOf({ columns, rows, is_truncated: false, elapsed_ms: 1 } as QueryResult, 0, 2, null).labels;
  };
  zone.current = "local";
  try {
    const days = ["27 Nov", "28 Nov"];
    expect(labels("timestamptz", "2026-11-27 00:00:00+00", "2026-11-28 00:00:00+00")).toEqual(days);
    expect(labels("date", "2026-11-27", "2026-11-28")).toEqual(days);
    expect(labels("timestamp", "2026-11-27 00:00:00", "2026-11-28 00:00:00")).toEqual(days);
    expect(labels("timestamp", "2026-11-27 10:30:00")).toEqual(["27 Nov 10:30"]);
    // Midnight in another zone.
    expect(labels("timestamptz", "2026-11-26 16:00:00+00", "2026-11-27 16:00:00+00")).toHaveLength(2);
  } finally {
    zone.current = "utc";
  }
});

test("without a split, rows at one place are added up; other values than times keep their order", () => {
  expect(drawnOf(byDay, 0, 2, null).series).toEqual([{ name: "runs", values: [2, 5] }]);
  expect(drawnOf(byDay, 1, 2, null)).toEqual({
    labels: ["planner", "coder"],
    series: [{ name: "runs", values: [6, 1] }],
    left_out: 0,
  });
  expect(splitOf(result([byDay.rows[0] as unknown[]]), 0, [0, 1])).toBeNull();
});

test("of many series the smallest are one, and nothing of them is lost", () => {
  const many = result(Array.from({ length: 40 }, (_, n) => ["2026-11-28 00:00:00+00", `agent ${n}`, n]));
  const { series } = drawnOf(many, 0, 2, 1);
  expect(series.map(({ name }) => name)).toEqual([
    "agent 39",
    "agent 38",
    "agent 37",
    "agent 36",
    "agent 35",
    "35 others",
  ]);
  expect(series.flatMap(({ values }) => values).reduce((sum: number, value) => sum + (value ?? 0), 0)).toBe(
    780,
  );
});
