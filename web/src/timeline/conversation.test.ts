import { expect, test } from "vitest";
import { RunView } from "../feed/fold";
import type { RunEvent } from "@runreel/client";
import { event, run_id, tell, told } from "../feed/testing";
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
  const { items, earlier } = itemsOf(view, most);
  return { earlier, said: items.map((item) => (item.kind === "text" ? item.text.text : item.span.name)) };
}

test("texts and calls stand in the order of the log", () => {
  expect(itemsOfRun(10)).toEqual({ earlier: 0, said: ["hello", "search", "one", "two"] });
});

test("of a long conversation the end is shown, and how many texts there are before it", () => {
  expect(itemsOfRun(2)).toEqual({ earlier: 1, said: ["one", "two"] });
});

test("a text stands where it began, while it is written and after, and is the same item", () => {
  const view = new RunView();
  const tokens = (text: string, offset: number) =>
    told({ type: "message.delta", run_id, span_id: "m1", payload: { text, offset } } as unknown as RunEvent);
  const seen = () =>
    itemsOf(view, 10).items.map((item) => (item.kind === "text" ? item.text.text : item.span.name));
  tell(view, told(event(1, "run.created")));
  tell(view, tokens("one ", 0));
  tell(view, told(event(2, "tool.started", { span_id: "t1", payload: { name: "search" } })));
  tell(view, tokens("two", 4));
  expect(seen()).toEqual(["one two", "search"]);
  const key = itemsOf(view, 10).items[0]?.key;
  tell(view, told(event(3, "message.completed", { span_id: "m1", payload: { text: "one two" } })));
  tell(view, told(event(4, "message.completed", { span_id: "m1", payload: { text: "three" } })));
  expect(seen()).toEqual(["one two", "search", "three"]);
  expect(itemsOf(view, 10).items[0]?.key).toBe(key);
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
