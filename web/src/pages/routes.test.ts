import { describe, expect, test } from "vitest";
import { routeOf, runPath, searchWith } from "./routes";

describe("addresses", () => {
  test("the root is the list of runs", () => {
    expect(routeOf("/")).toEqual({ page: "runs" });
  });

  test("the tokens have an address", () => {
    expect([routeOf("/tokens"), routeOf("/tokens/")]).toEqual([{ page: "tokens" }, { page: "tokens" }]);
  });

  test("a run's address leads back to the run", () => {
    expect(routeOf(runPath("a b/c"))).toEqual({ page: "run", id: "a b/c" });
  });

  test("anything else is told to be missing", () => {
    expect(routeOf("/runs/a/b")).toEqual({ page: "missing" });
    expect(routeOf("/docs")).toEqual({ page: "missing" });
  });

  test("a malformed escape does not break the page", () => {
    expect(routeOf("/runs/%E0%A4%A")).toEqual({ page: "run", id: "%E0%A4%A" });
  });

  test("an emptied filter leaves the address", () => {
    expect(searchWith("?status=failed&q=x", { status: null, q: "" })).toBe("");
    expect(searchWith("?status=failed", { sel: 4 })).toBe("?status=failed&sel=4");
  });
});
