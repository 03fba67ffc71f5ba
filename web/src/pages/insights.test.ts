import { expect, test } from "vitest";
import { zone } from "../ui/looks.svelte";
import { bucketName, bucketsOf, narrowed, rangeOf, sqlTime, valuesOf } from "./insights";

const query = "select date_trunc('day', created_at) from runs where created_at > now() - interval '7 days'";
const inZone = query.replace("created_at)", "created_at, 'UTC')");
zone.current = "utc";
const day = (n: number, hour = 0) => Date.UTC(2026, 10, n, hour);

test("a query is asked of another period and of one agent", () => {
  expect(narrowed(query, rangeOf("7d"), "")).toBe(inZone);
  expect(narrowed(query, rangeOf("24h"), "")).toBe(
    "select date_trunc('hour', created_at, 'UTC') from runs where created_at > now() - interval '24 hours'",
  );
  expect(narrowed(query, rangeOf(null), "it's")).toBe(
    `with runs as (select * from runs where agent = 'it''s')\n${inZone}`,
  );
});

test("times of Postgres are read with their zone", () => {
  expect(sqlTime("2026-11-25 00:00:00+00")).toBe(day(25));
  expect(sqlTime("2026-11-25 05:30:00.5+05:30")).toBe(day(25) + 500);
  expect(sqlTime(null)).toBeNull();
  expect(sqlTime("never")).toBeNull();
});

test("a period has all its buckets; a day without runs is told apart from a day that is not told of", () => {
  const rows = [
    { day: "2026-11-23 00:00:00+00", runs: 2, model: "a" },
    { day: "2026-11-23 00:00:00+00", runs: 3, model: "b" },
  ];
  const buckets = bucketsOf(rows, rangeOf("7d"), day(25, 17));
  expect(buckets.length).toBe(8);
  expect(buckets.at(-1)).toBe(day(25));
  expect(valuesOf(rows, buckets, "runs")).toEqual([null, null, null, null, null, 5, null, null]);
  expect(bucketName(day(25), rangeOf("7d"))).toBe("25 Nov");
});

test("days of another zone than ours are drawn as they are", () => {
  const rows = [{ day: "2026-11-23 00:00:00+02", runs: 2 }];
  expect(bucketsOf(rows, rangeOf("7d"), day(25, 17))).toEqual([day(22, 22)]);
});

test("days are those of the zone that times are told in", () => {
  zone.current = "local";
  const range = rangeOf("7d");
  const last = new Date(bucketsOf([], range, day(25, 17)).at(-1) ?? 0);
  expect([last.getHours(), last.getMinutes()]).toEqual([0, 0]);
  expect(narrowed(query, range, "")).toContain(`'${Intl.DateTimeFormat().resolvedOptions().timeZone}'`);
  zone.current = "utc";
});
