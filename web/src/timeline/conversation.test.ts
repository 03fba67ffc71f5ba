import { expect, test } from "vitest";
import { RunView } from "../feed/fold";
import { event, tell, told } from "../feed/testing";
import { askedOf, itemsOf } from "./conversation";

function itemsOfRun(most: number) {
  const view = new RunView();
  const events = [
    event(1, "run.created"),
    event(2, "message.completed", { payload: { role: "user", text: "hello" } }),
    event(3, "tool.started", { span_id: "t1", payload: { name: "search" } }),
    event(4, "message.completed", { payload: { text: "one" } }),
    event(5, "tool.completed", { span_id: "t1" }),
    event(6, "message.completed", { payload: { text: "two" } }),
  ];
  for (const each of events) tell(view, told(each));
  const { texts, spans } = view;
  const { items, earlier } = itemsOf(texts.done, [...texts.open.values()], spans.tree.spans, most);
  return { earlier, said: items.map((item) => (item.kind === "text" ? item.text.text : item.span.name)) };
}

test("texts and calls stand in the order of the log", () => {
  expect(itemsOfRun(10)).toEqual({ earlier: 0, said: ["hello", "search", "one", "two"] });
});

test("of a long conversation the end is shown, and how many texts there are before it", () => {
  expect(itemsOfRun(2)).toEqual({ earlier: 1, said: ["one", "two"] });
});

test("what a person said is found in the input, whatever its shape", () => {
  const messages = [
    { role: "user", content: "first" },
    { role: "assistant", content: "yes" },
    { role: "user", content: [{ type: "text", text: "last" }] },
  ];
  expect(askedOf({ messages })).toBe("last");
  expect(askedOf("plain")).toBe("plain");
  expect(askedOf({ prompt: "go" })).toBe("go");
  expect(askedOf({ rows: 4 })).toBeNull();
});
