import { expect, test } from "vitest";
import { outputText } from "./facts";

test("an output is a text, a message, or nothing to read", () => {
  expect(outputText("yes")).toBe("yes");
  expect(outputText({ text: "yes" })).toBe("yes");
  expect(outputText({ content: [{ type: "text", text: "yes" }] })).toBe("yes");
  expect(outputText({ rows: 4 })).toBeNull();
});
