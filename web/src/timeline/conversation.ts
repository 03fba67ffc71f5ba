import type { RunEvent } from "@runreel/client";
import { charCount, fields, messageText, textOf, type SpanText } from "@runreel/client/fold";
import type { RunView } from "../feed/fold";
import type { Span } from "../feed/tree";

/** An item of a conversation. */
export type Item =
  | { kind: "text"; key: string; text: SpanText }
  /** A call of a tool, in one line. A copy: spans change in place. */
  | { kind: "tool"; key: string; span: Span };

/**
 * The last texts and calls, at most `most`, and the number of texts before them. They are in the order in which they
 * began, so a text is before the calls that were made while it was written.
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

/** The item of a text; its key does not change when the text is complete. */
const itemOfText = (text: SpanText, place: number): Item => ({
  kind: "text",
  key: `${text.span_id} ${place}`,
  text: { ...text },
});

/** A text of which only the title is known, completed from its event. */
export function textWith(text: SpanText, event: RunEvent | undefined): SpanText {
  if (event === undefined) return text;
  const whole = messageText(event.payload) ?? text.text;
  const role = textOf(fields(event.payload)["role"]) ?? event.role;
  return { ...text, text: whole, chars: charCount(whole), role, agent: event.agent ?? null };
}

/** A person's message in the input of a run; null when the input has none. */
export function askedOf(input: unknown): string | null {
  const { messages, text, prompt, message, question } = fields(input);
  if (Array.isArray(messages)) {
    const last = messages.filter((each) => (textOf(fields(each)["role"]) ?? "user") === "user").at(-1);
    const asked = messageText(last);
    if (asked !== null) return asked;
  }
  return textOf(input) ?? textOf(text) ?? textOf(prompt) ?? textOf(message) ?? textOf(question);
}
