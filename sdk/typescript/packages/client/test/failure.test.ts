import fc from "fast-check";
import { expect, test } from "vitest";
import { failureLine, failureOf, readFailure, type Failure } from "../src/failure.js";

const line = (failure: Failure | null) => (failure === null ? "" : failureLine(failure));

test.each([
  [{ type: "KeyError", message: "'customer_id'" }, "KeyError: 'customer_id'"],
  [{ type: "AssertionError", message: "" }, "AssertionError"],
  [{ type: "AssertionError" }, "AssertionError"],
  [{ message: "it broke", code: "x" }, "it broke"],
  [{ type: 7, message: "it broke" }, "it broke"],
  [{ detail: "not found" }, "not found"],
  [{ code: "x" }, "x"],
  [{ message: { a: 1 } }, '{"message":{"a":1}}'],
  [{ $artifact: { size: 90_000 }, preview: '{"error":' }, '{"error":'],
  ["  it broke\n", "it broke"],
  [{ error: { type: "overloaded", message: "try later" } }, "overloaded: try later"],
  [{ error: null }, ""],
  [7, "7"],
  [false, "false"],
  [[1, 2], "[1,2]"],
  [null, ""],
  [undefined, ""],
  ["  ", ""],
  [{}, ""],
  [[], ""],
])("an error in any form is its type and its message: %j", (error, expected) => {
  expect(line(readFailure(error))).toBe(expected);
});

test.each([
  [{ name: "plan", duration_ms: 3 }, ""],
  [{ name: "plan", error: null }, ""],
  [{ name: "plan", error: {} }, ""],
  [{ name: "plan", error: { type: "AssertionError", message: "" } }, "AssertionError"],
  [{ name: "plan", error: "timeout" }, "timeout"],
  [{ name: "plan", reason: "timeout" }, "timeout"],
  [{ type: "KeyError", message: "'x'" }, "KeyError: 'x'"],
  ["timeout", ""],
  [null, ""],
])("a failed event without an error says only what it says of one: %j", (payload, expected) => {
  expect(line(failureOf(payload))).toBe(expected);
});

test("the stack and every cause are read with it", () => {
  const cause = { type: "KeyError", message: "'id'", stack: "at b\n" };
  const failure = readFailure({
    type: "ReportError",
    message: "no report",
    stack: "at a",
    cause,
    errors: ["x", null],
  });
  expect(failure?.stack).toBe("at a");
  expect(failure?.causes.map(line)).toEqual(["KeyError: 'id'", "x"]);
  expect(failure?.causes[0]?.stack).toBe("at b");
});

test("no more causes are read than a person reads, and an error that is read says something", () => {
  const count = (failure: Failure | null): number =>
    failure === null ? 0 : failure.causes.reduce((sum, cause) => sum + count(cause), 1);
  let chain: unknown = "the first";
  for (let n = 0; n < 60; n += 1) chain = { message: "x", cause: chain };
  for (const error of [
    chain,
    { message: "x", errors: Array(10_000).fill("y") },
    { message: "x", errors: Array(99).fill(chain) },
  ])
    expect(count(readFailure(error))).toBe(16);
  fc.assert(
    fc.property(fc.jsonValue(), (error) => {
      const failure = readFailure(error);
      if (failure !== null) expect(failureLine(failure)).not.toBe("");
    }),
  );
});
