import { expect, test } from "vitest";
import { messageText } from "../src/read.js";

test("a message's text is read from parts, from a string, or from a preview", () => {
  expect(messageText({ content: [{ type: "text", text: "a" }, { type: "image" }, { text: "b" }] })).toBe(
    "ab",
  );
  expect(messageText({ content: "plain" })).toBe("plain");
  expect(messageText({ text: "short" })).toBe("short");
  expect(messageText({ $artifact: {}, preview: "begins" })).toBe("begins");
  expect(messageText(null)).toBeNull();
});
