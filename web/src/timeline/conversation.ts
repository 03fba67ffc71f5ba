import type { RunEvent } from "@runreel/client";
import { charCount, fields, messageText, textOf, type SpanText } from "@runreel/client/fold";
import type { Span } from "../feed/tree";

/** What stands in a conversation, in the order of the log. */
export type Item =
  | { kind: "text"; key: string; text: SpanText }
  /** A call of a tool, in one line. A copy: spans change in place. */
  | { kind: "tool"; key: string; span: Span };

const seqOf = (text: SpanText): number => text.seq ?? Infinity;

/**
 * The last texts and calls, at most `most`, and how many there are before them. Both are in the order of their seqs;
 * what streams now is at the end.
 */
export function itemsOf(
  done: readonly SpanText[],
  open: readonly SpanText[],
  spans: readonly Span[],
  most: number,
): { items: Item[]; earlier: number } {
  const items: Item[] = open.map((text) => itemOfText(text)).reverse();
  let text = done.length - 1;
  let span = lastTool(spans, spans.length - 1);
  while (items.length < most && (text >= 0 || span >= 0)) {
    const [nextText, nextSpan] = [done[text], spans[span]];
    if (nextSpan !== undefined && (nextText === undefined || nextSpan.start_seq > seqOf(nextText))) {
      items.push({ kind: "tool", key: `tool ${nextSpan.index}`, span: { ...nextSpan } });
      span = lastTool(spans, span - 1);
    } else if (nextText !== undefined) {
      items.push(itemOfText(nextText));
      text -= 1;
    }
  }
  return { items: items.reverse(), earlier: text + 1 };
}

const itemOfText = (text: SpanText): Item => ({
  kind: "text",
  key: `${text.span_id} ${text.seq}`,
  text: { ...text },
});

/** A text of which only the title is known, as its event has it. */
export function textWith(text: SpanText, event: RunEvent | undefined): SpanText {
  if (event === undefined) return text;
  const whole = messageText(event.payload) ?? text.text;
  const role = textOf(fields(event.payload)["role"]) ?? event.role;
  return { ...text, text: whole, chars: charCount(whole), role, agent: event.agent ?? null };
}

function lastTool(spans: readonly Span[], from: number): number {
  let at = from;
  while (at >= 0 && spans[at]?.kind !== "tool") at -= 1;
  return at;
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
