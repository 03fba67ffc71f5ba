import { expect, test } from "vitest";
import type { Guide } from "../api/sql";
import { axesOf, axisLabel, cellOf, numberOf } from "./sqlcells";
import { offered, piecesOf, placeOf } from "./sqlwords";

const view = (name: string, ...columns: string[]) => ({
  name,
  description: "",
  columns: columns.map((each) => ({ name: each, type: "text", description: "" })),
});
const guide: Guide = {
  views: [view("runs", "run_id", "status", "started_at"), view("tool_calls", "name", "status")],
  functions: [{ name: "first_run_id", signature: "first_run_id(moment)", description: "" }],
  examples: [],
  limits: { rows_max: 10, bytes_max: 10, timeout_ms: 10 },
};
const words = (query: string) => offered(guide, query, query.length).map(({ text }) => text);

test("the pieces of a query are its text, whatever it is", () => {
  for (const query of [
    "select 'it''s' -- end\nfrom runs",
    "'open",
    "/* open",
    "$$ a $$ ünïcode \u{1f600}",
    "",
  ])
    expect(
      piecesOf(query)
        .map(({ text }) => text)
        .join(""),
    ).toBe(query);
  const kinds = piecesOf("select 1 from runs -- no").map(({ kind, text }) => `${kind} ${text.trim()}`);
  expect(kinds).toContain("keyword select");
  expect(kinds).toContain("number 1");
  expect(kinds).toContain("name runs");
  expect(kinds).toContain("comment -- no");
});

test("columns of the views that a query names are offered, by their alias too", () => {
  expect(words("select st from runs where st")).toEqual(["status", "started_at"]);
  expect(words("select * from runs r where r.s")).toEqual(["status", "started_at"]);
  expect(words("select * from tool_calls as t join runs r on t.")).toEqual(["name", "status"]);
  expect(words("select * from to")).toEqual(["tool_calls"]);
  expect(words("select firs")).toEqual(["first_run_id(", "first"]);
});

test("nothing is offered inside of a text, a comment or a number", () => {
  expect(words("select 'st")).toEqual([]);
  expect(words("-- st")).toEqual([]);
  expect(words("select 12")).toEqual([]);
});

test("a position counts people's characters", () => {
  expect(placeOf("select '😀' nope", 12)).toEqual({ at: 12, line: 1, column: 12 });
  expect(placeOf("a\nbc d", 6)).toEqual({ at: 5, line: 2, column: 4 });
});

test("runs are links, null is told apart from an empty text, and long values are cut", () => {
  const cell = (value: unknown, name: string, type: string) => cellOf(value, { name, type });
  expect(cell("01a2", "last_run_id", "uuid")).toMatchObject({ href: "/runs/01a2" });
  expect(cell("01a2", "artifact_id", "uuid").href).toBeNull();
  expect(cell(null, "a", "text")).toMatchObject({ text: "·", isNull: true });
  expect(cell("", "a", "text")).toMatchObject({ text: "", isNull: false });
  expect(cell("x".repeat(1000), "a", "text").isCut).toBe(true);
  expect(cell({ a: [1] }, "a", "json")).toMatchObject({ text: '{"a":[1]}', isCut: true });
});

test("a chart goes along times first, and what is no number is unknown", () => {
  const columns = [
    { name: "n", type: "int8" },
    { name: "agent", type: "text" },
    { name: "day", type: "timestamptz" },
  ];
  expect(axesOf({ columns, rows: [], is_truncated: false, elapsed_ms: 1 })).toEqual({
    along: [2, 1, 0],
    numbers: [0],
  });
  expect([numberOf(1.5), numberOf("2"), numberOf(null), numberOf("x"), numberOf("")]).toEqual([
    1.5,
    2,
    null,
    null,
    null,
  ]);
  const day = { name: "day", type: "timestamptz" };
  expect(axisLabel("2026-11-25 00:00:00+00", day)).toBe("2026-11-25");
  expect(axisLabel("2026-11-25 14:30:00+00", day)).toBe("11-25 14:30");
  expect(axisLabel(null, day)).toBe("none");
});
