import { expect, test } from "vitest";
import { Facts, outputText } from "./facts";
import { errorOf, previewOf } from "./read";
import { event, inSpan } from "./testing";

test("tokens are summed over the calls, and what no call tells stays unknown", () => {
  const facts = new Facts();
  const usage = { input_tokens: 800, output_tokens: 40 };
  facts.take(event(1, "message.completed", { payload: { text: "one", model: "m1", usage } }));
  facts.take(
    event(2, "message.completed", { payload: { text: "two", model: "m1", usage: { input_tokens: 2 } } }),
  );
  facts.take(event(3, "run.completed", { payload: { usage } }));
  expect(facts.tokens).toEqual({ calls: 2, input: 802, output: 40 });
  expect(facts.models).toEqual(["m1"]);
  expect(facts.answer).toEqual({ seq: 2, text: "two" });
});

test("a run that fails without a word has the error of what failed before", () => {
  const facts = new Facts();
  facts.take(event(1, "tool.failed", { ...inSpan("t"), payload: { error: { message: "429" } } }));
  facts.take(event(2, "run.failed", { payload: {} }));
  expect(facts.error).toEqual({ seq: 1, type: "tool.failed", text: "429" });
});

test("errors are read wherever producers put their text", () => {
  const told = [
    { error: "a" },
    { error: { message: "a" } },
    { message: "a" },
    "a",
    { error: { detail: "a" } },
  ];
  expect(told.map(errorOf)).toEqual(["a", "a", "a", "a", "a"]);
  expect(errorOf({ code: 4 })).toBe("");
});

test("arguments are told in a few words, whatever they are", () => {
  expect(previewOf({ from: "BER", days: 2, deep: { a: 1 }, list: [1, 2] })).toBe(
    "from: BER, days: 2, deep: {…}, list: [2]",
  );
  expect(previewOf("two\n  lines")).toBe("two lines");
  expect(previewOf(null)).toBe("");
  expect(previewOf({ text: "x".repeat(9_000) }).length).toBeLessThanOrEqual(100);
});

test("an output is a text, a message, or nothing to read", () => {
  expect(outputText("yes")).toBe("yes");
  expect(outputText({ text: "yes" })).toBe("yes");
  expect(outputText({ content: [{ type: "text", text: "yes" }] })).toBe("yes");
  expect(outputText({ rows: 4 })).toBeNull();
});
