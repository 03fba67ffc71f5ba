import { expect, test } from "vitest";
import { outputText } from "./facts";
import { errorOf } from "./read";

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

test("an output is a text, a message, or nothing to read", () => {
  expect(outputText("yes")).toBe("yes");
  expect(outputText({ text: "yes" })).toBe("yes");
  expect(outputText({ content: [{ type: "text", text: "yes" }] })).toBe("yes");
  expect(outputText({ rows: 4 })).toBeNull();
});
