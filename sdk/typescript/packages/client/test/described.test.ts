import { expect, test } from "vitest";
import { described } from "../src/described.js";
import { failureLine, readFailure, type Failure } from "../src/failure.js";
import { encoded } from "../src/payload.js";

/** As a reader gets it. */
function read(error: unknown): Failure | null {
  return readFailure(JSON.parse(encoded({ error: described(error) })).error);
}

const line = (error: unknown) => {
  const failure = read(error);
  return failure === null ? "" : failureLine(failure);
};

class PaymentError extends Error {}

const circular: Record<string, unknown> = { message: "round" };
circular["self"] = circular;

const hostile = Object.defineProperty(new Error("x"), "message", {
  get: () => {
    throw new Error("no");
  },
});

test.each([
  [new TypeError("x is not a function"), "TypeError: x is not a function"],
  [new PaymentError("no money"), "PaymentError: no money"],
  [new Error(), "Error"],
  [new Error("größer 日本"), "Error: größer 日本"],
  ["just text", "Error: just text"],
  [undefined, "Error: undefined"],
  [null, "Error: null"],
  [7n, "Error: 7"],
  [Symbol("s"), "Error: Symbol(s)"],
  [{ message: "an object" }, "an object"],
  [{ status: 429 }, '{"status":429}'],
  [circular, "round"],
  [hostile, "Error: …"],
  [new DOMException("stopped", "AbortError"), "AbortError: stopped"],
])("whatever is thrown is told: %#", (error, expected) => {
  expect(line(error)).toBe(expected);
});

test("an error has the frames of where it happened, its code and its causes", () => {
  function innermost(): never {
    throw Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
  }
  let caught: unknown;
  try {
    innermost();
  } catch (error) {
    caught = new AggregateError([error, "text"], "all\nfailed", { cause: { reason: "an object" } });
  }
  const failure = read(caught);
  expect(failure).toMatchObject({ type: "AggregateError", message: "all\nfailed" });
  expect(failure?.stack).toMatch(/^ +at .*described\.test/);
  const [cause, first, second] = failure?.causes ?? [];
  expect(cause?.message).toBe("an object");
  expect(first).toMatchObject({ message: "refused", code: "ECONNREFUSED" });
  expect(first?.stack).toMatch(/^ +at innermost /);
  expect(second?.message).toBe("text");
});

test("causes end where they meet themselves, and all stacks together have a bound", () => {
  const error = new Error("first");
  error.cause = new Error("second", { cause: error });
  expect(read(error)?.causes[0]?.causes).toEqual([]);
  let chain = new Error("last");
  for (let n = 0; n < 40; n += 1) chain = new Error(`e${n}`, { cause: chain });
  const long = new AggregateError([chain, chain], "x".repeat(100_000));
  for (const each of [long, chain]) each.stack = `Error\n${"    at somewhere (file.js:1:1)\n".repeat(5_000)}`;
  const json = encoded(described(long));
  expect(json.length).toBeLessThan(40_000);
  const failure = readFailure(JSON.parse(json));
  expect(failure?.stack).toMatch(/^ {4}at somewhere .*\n {4}… \d+ characters left out$/s);
  expect(failure?.message).toHaveLength(16_385);
});
