import { expect, test } from "vitest";
import { asTyped, filterOf, readSearch, sinceOf, toggled } from "./filters";

test("what is written before a colon becomes a filter, the rest is searched for", () => {
  expect(readSearch("429 agent:planner  tag:nightly ledger")).toEqual({
    q: "429 ledger",
    chips: { agent: "planner", tag: "nightly" },
  });
  expect(readSearch("http://x agent: foo:bar")).toEqual({ q: "http://x agent: foo:bar", chips: {} });
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
