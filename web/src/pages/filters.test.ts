import { expect, test } from "vitest";
import {
  asTyped,
  chipsOf,
  countQueryOf,
  escaped,
  filterOf,
  hasRoots,
  msOf,
  queryOf,
  readSearch,
  sinceOf,
  toggled,
  valuesOf,
} from "./filters";

test("what is written before a colon becomes a filter, the rest is searched for", () => {
  expect(readSearch("429 agent:planner  tag:nightly ledger")).toEqual({
    q: "429 ledger",
    chips: { agent: "planner", tag: "nightly" },
  });
  expect(readSearch("http://x agent: foo:bar")).toEqual({ q: "http://x agent: foo:bar", chips: {} });
  expect(readSearch('agent:"Weather, agent" longer:1m30s shorter:soon')).toEqual({
    q: "shorter:soon",
    chips: { agent: "Weather\\, agent", duration_min_ms: "90000" },
  });
  expect(readSearch("costlier:$0.05 cheaper:free")).toEqual({
    q: "cheaper:free",
    chips: { cost_min_usd: "0.05" },
  });
});

test("the word that somebody is typing is searched for by its beginning", () => {
  expect(asTyped("ledger inv")).toBe("ledger inv*");
  for (const text of ["in", "inv ", "inv*", "\u6771\u4eac\u90fd"]) expect(asTyped(text)).toBe(text);
  for (const text of ["", " ", "-", "*"]) expect(asTyped(text)).toBe("");
});

test("statuses are switched on and off", () => {
  expect(toggled("", "failed")).toBe("failed");
  expect(toggled("failed", "running")).toBe("failed,running");
  expect(toggled("failed,running", "failed")).toBe("running");
});

test("a time before now is told to the API, any other as it is", () => {
  expect(sinceOf("24h", Date.parse("2026-11-25T12:00:00Z"))).toBe("2026-11-24T12:00:00.000Z");
  expect(sinceOf("2026-01-01T00:00:00Z", 0)).toBe("2026-01-01T00:00:00Z");
  expect(sinceOf("", 0)).toBe("");
});

test("a filter is read from the address, whatever else is in it", () => {
  expect(filterOf("?status=failed&x=1")).toMatchObject({ status: "failed", q: "", agent: "" });
});

test("a comma in a name does not end it", () => {
  expect(valuesOf("a\\,b,c")).toEqual(["a,b", "c"]);
  expect(valuesOf(`${escaped("x, y")},z`)).toEqual(["x, y", "z"]);
});

test("times are read as people write them", () => {
  const told = ["90", "30 s", "1m30s", "2 h", "250ms", "1.5s"].map(msOf);
  expect(told).toEqual([90_000, 30_000, 90_000, 7_200_000, 250, 1_500]);
  expect(["", "soon", "5 weeks", "s"].map(msOf)).toEqual([null, null, null, null]);
});

test("only runs without a parent are listed until something is looked for", () => {
  for (const search of ["", "?status=failed", "?since=24h&sort=events"])
    expect(hasRoots(search), search).toBe(true);
  for (const search of ["?q=x", "?agent=a", "?runs=all", "?parent_run_id=1", "?runs=top&parent_run_id=1"])
    expect(hasRoots(search), search).toBe(false);
  expect(hasRoots("?agent=a&runs=top")).toBe(true);
});

test("the counts are of the same runs, whatever their status and order", () => {
  const query = queryOf("?status=failed&agent=a&sort=events&order=asc", 0);
  expect(query).toMatchObject({ status: "failed", agent: "a", sort: "events", order: "asc", roots: null });
  expect(countQueryOf(query)).toMatchObject({ agent: "a" });
  expect(Object.keys(countQueryOf(query))).not.toContain("status");
  expect(Object.keys(countQueryOf(query))).not.toContain("sort");
});

test("chips say what is filtered in words", () => {
  const chips = chipsOf(
    filterOf("?status=failed&agent=a,b&tag=x,y&duration_min_ms=30000&since=24h&cost_max_usd=2"),
  );
  expect(chips.map(({ word, text }) => `${word}: ${text}`)).toEqual([
    "agent: a or b",
    "tag: x and y",
    "created: last day",
    "duration: at least 30.0 s",
    "cost: less than $2.00",
  ]);
});
