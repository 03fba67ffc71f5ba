import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { delta, event, run_id } from "./frames.js";
import { charCount, firstChars, Texts } from "../src/texts.js";

const snapshot = { type: "message.snapshot", delta_type: "message.delta", run_id, span_id: "m1" } as const;
const open = (texts: Texts, span_id = "m1") => texts.open.get(span_id);

describe("streaming texts", () => {
  test("deltas join to one text", () => {
    const texts = new Texts();
    texts.delta(delta("m1", 0, "Hel"));
    texts.delta(delta("m1", 3, "lo"));
    expect(open(texts)).toMatchObject({ text: "Hello", chars: 5, hole: false });
  });

  test("offsets count characters, not UTF-16 units", () => {
    const texts = new Texts();
    texts.delta(delta("m1", 0, "a😀"));
    texts.delta(delta("m1", 2, "b"));
    expect(open(texts)).toMatchObject({ text: "a😀b", chars: 3, hole: false });
  });

  test("a delta below the known length cuts the text and goes on from there", () => {
    const texts = new Texts();
    texts.delta(delta("m1", 0, "one 😀 two"));
    texts.delta(delta("m1", 5, " again"));
    expect(open(texts)?.text).toBe("one 😀 again");
  });

  test("a delta above the known length marks a hole until the durable event brings the whole text", () => {
    const texts = new Texts();
    texts.delta(delta("m1", 0, "one "));
    texts.delta(delta("m1", 9, "three"));
    expect(open(texts)?.hole).toBe(true);
    const payload = { role: "assistant", content: [{ type: "text", text: "one two three" }] };
    texts.event(event(4, "message.completed", { span_id: "m1", payload }));
    expect(open(texts)).toBeUndefined();
    expect(texts.done).toMatchObject([{ text: "one two three", hole: false, seq: 4, role: "assistant" }]);
  });

  test("a snapshot replaces what is known and the next delta follows it", () => {
    const texts = new Texts();
    texts.delta(delta("m1", 0, "old"));
    texts.snapshot({ ...snapshot, text: "all so far", offset: 10 });
    texts.delta(delta("m1", 10, "!"));
    expect(open(texts)).toMatchObject({ text: "all so far!", hole: false });
  });

  test("a late delta or snapshot of a finished message does not open it again", () => {
    const texts = new Texts();
    texts.event(event(1, "message.completed", { span_id: "m1", payload: { text: "done" } }));
    texts.delta(delta("m1", 0, "do"));
    texts.snapshot({ ...snapshot, text: "do", offset: 2 });
    expect(texts.open.size).toBe(0);
    expect(texts.done).toHaveLength(1);
  });

  test("a tool's output is gone from the open texts when the tool ends", () => {
    const texts = new Texts();
    texts.delta(delta("t1", 0, "line", "tool.delta"));
    texts.event(event(2, "tool.completed", { span_id: "t1" }));
    expect(texts.open.size).toBe(0);
  });

  test("however a text is cut into deltas, it comes out whole", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme", maxLength: 8 })), (parts) => {
        const texts = new Texts();
        let offset = 0;
        for (const part of parts) {
          texts.delta(delta("m1", offset, part));
          offset += charCount(part);
        }
        expect(open(texts)?.text ?? "").toBe(parts.join(""));
        expect(open(texts)?.hole ?? false).toBe(false);
      }),
    );
  });

  test("counting and cutting by characters agree with the language's own iteration", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.nat(20), (text, chars) => {
        expect(charCount(text)).toBe([...text].length);
        expect(firstChars(text, chars)).toBe([...text].slice(0, chars).join(""));
      }),
    );
  });
});
