import type { RunEvent } from "@runreel/client";
import { charCount, fields, messageText, textOf, type SpanText } from "@runreel/client/fold";
import type { RunView } from "../feed/fold";
import type { Span } from "../feed/tree";

/** What stands in a conversation, in the order of the log. */
export type Item =
  | { kind: "text"; key: string; text: SpanText }
  /** A call of a tool, in one line. A copy: spans change in place. */
  | { kind: "tool"; key: string; span: Span };

/**
 * The last texts and calls, at most `most`, and how many texts there are before them: in the order in which they began, a
 * text before what was called while it was written.
 */
export function itemsOf({ texts, spans, begun }: RunView, most: number): { items: Item[]; earlier: number } {
  const last = [...texts.done.slice(-most), ...texts.open.values()];
  const placed: { place: number; item: Item }[] = last.map((text) => {
    const place = begun.placeOf(text);
    return { place: place + 0.5, item: itemOfText(text, place) };
  });
  let called = 0;
  for (let at = spans.tree.spans.length - 1; at >= 0 && called < most; at -= 1) {
    const span = spans.tree.spans[at] as Span;
    if (span.kind !== "tool") continue;
    called += 1;
    placed.push({
      place: span.start_seq,
      item: { kind: "tool", key: `tool ${span.index}`, span: { ...span } },
    });
  }
  placed.sort((a, b) => a.place - b.place);
  const items = placed.slice(-most).map(({ item }) => item);
  const shown = items.filter(({ kind }) => kind === "text").length;
  return { items, earlier: texts.done.length + texts.open.size - shown };
}

/** Its key stays what it is when it is complete. */
const itemOfText = (text: SpanText, place: number): Item => ({
  kind: "text",
  key: `${text.span_id} ${place}`,
  text: { ...text },
});

/** A text of which only the title is known, as its event has it. */
export function textWith(text: SpanText, event: RunEvent | undefined): SpanText {
  if (event === undefined) return text;
  const whole = messageText(event.payload) ?? text.text;
  const role = textOf(fields(event.payload)["role"]) ?? event.role;
  return { ...text, text: whole, chars: charCount(whole), role, agent: event.agent ?? null };
}

/** What a person said to the run, as its input has it; null when the input is something else. */
export function askedOf(input: unknown): string | null {
  const { messages, text, prompt, message, question } = fields(input);
  if (Array.isArray(messages)) {
    const last = messages.filter((each) => (textOf(fields(each)["role"]) ?? "user") === "user").at(-1);
    const said = messageText(last);
    if (said !== null) return said;
  }
  return textOf(input) ?? textOf(text) ?? textOf(prompt) ?? textOf(message) ?? textOf(question);
}
