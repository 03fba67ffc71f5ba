import type { DeltaEvent, RunEvent, Snapshot } from "./events.js";
import { familyOf, fields, messageText, textOf } from "./read.js";

/** A text of the run: streaming, or final from its durable event. */
export interface SpanText {
  span_id: string;
  /** `message`, `reasoning`, `tool`. */
  family: string;
  role: string;
  agent: string | null;
  text: string;
  /** Unicode characters so far, missing ones included: the offset the next delta should have. */
  chars: number;
  /** Characters are missing before the end; the durable event will have them. */
  hole: boolean;
  /** The seq of the durable event; `null` while the text streams. */
  seq: number | null;
  /** Only the beginning is kept; the whole is in the event `seq`. */
  cut: boolean;
}

/** Characters kept of all finished texts together, and of each one that is shortened when there are more. */
export const textLimits = { kept_chars_max: 8_000_000, preview_chars: 4_000 };

/** The texts of one run: durable ones in the log's order, and those that are open now. */
export class Texts {
  readonly done: SpanText[] = [];
  readonly open = new Map<string, SpanText>();
  #kept = 0;
  #firstWhole = 0;

  delta(delta: DeltaEvent): void {
    const span_id = delta.span_id ?? "";
    const { text, offset } = delta.payload;
    const known = this.open.get(span_id);
    if (known === undefined && this.#isDone(span_id)) return;
    const into = known ?? this.#opened(span_id, delta.type, delta);
    if (offset < into.chars) {
      // The producer sends the text again (the server restarted in the middle): the new text counts.
      into.text = firstChars(into.text, offset);
      into.chars = offset;
    } else if (offset > into.chars) {
      into.hole = true;
      into.chars = offset;
    }
    into.text += text;
    into.chars += charCount(text);
  }

  snapshot(snapshot: Snapshot): void {
    if (this.#isDone(snapshot.span_id)) return;
    const into = this.#opened(snapshot.span_id, snapshot.delta_type, snapshot);
    into.text = snapshot.text;
    into.chars = snapshot.offset;
    // A bounded snapshot may omit the beginning of the text.
    into.hole = snapshot.offset > charCount(snapshot.text);
  }

  /** A durable event closes its span's text; that of a message or of reasoning replaces what streamed. */
  event(event: RunEvent): void {
    const family = familyOf(event.type);
    if (family !== "message" && family !== "reasoning") {
      if (event.span_id && this.open.size > 0 && /\.(completed|failed)$/.test(event.type)) {
        this.open.delete(event.span_id);
      }
      return;
    }
    if (!event.type.endsWith(".completed") && !event.type.endsWith(".failed")) return;
    const streamed = event.span_id ? this.open.get(event.span_id) : undefined;
    if (event.span_id) this.open.delete(event.span_id);
    const text = messageText(event.payload) ?? streamed?.text ?? null;
    if (text === null) return;
    this.done.push({
      span_id: event.span_id ?? `#${event.seq}`,
      family,
      role: textOf(fields(event.payload)["role"]) ?? event.role,
      agent: event.agent ?? null,
      text,
      chars: charCount(text),
      hole: false,
      seq: event.seq,
      cut: false,
    });
    this.#bound(text.length);
  }

  /** No more events can arrive: texts that are still open were abandoned by their producer. */
  close(): void {
    this.open.clear();
  }

  /** Whether a delta or snapshot is late, of a finished span; only those of recent spans can be. */
  #isDone(span_id: string): boolean {
    for (let index = this.done.length - 1; index >= Math.max(0, this.done.length - 64); index -= 1) {
      if (this.done[index]?.span_id === span_id) return true;
    }
    return false;
  }

  #opened(span_id: string, type: string, from: { role?: string; agent?: string | null }): SpanText {
    const open: SpanText = {
      span_id,
      family: familyOf(type),
      role: from.role ?? "agent",
      agent: from.agent ?? null,
      text: "",
      chars: 0,
      hole: false,
      seq: null,
      cut: false,
    };
    this.open.set(span_id, open);
    return open;
  }

  #bound(chars: number): void {
    this.#kept += chars;
    while (this.#kept > textLimits.kept_chars_max && this.#firstWhole < this.done.length - 1) {
      const oldest = this.done[this.#firstWhole] as SpanText;
      this.#firstWhole += 1;
      if (oldest.text.length <= textLimits.preview_chars) continue;
      this.#kept -= oldest.text.length - textLimits.preview_chars;
      oldest.text = oldest.text.slice(0, textLimits.preview_chars);
      oldest.cut = true;
    }
  }
}

/** Unicode characters (code points), as the wire counts them; JavaScript's `length` counts UTF-16 units. */
export function charCount(text: string): number {
  let count = text.length;
  for (let index = 0; index < text.length - 1; index += 1) {
    if (isPairAt(text, index)) {
      count -= 1;
      index += 1;
    }
  }
  return count;
}

/** The first `chars` characters (code points) of a text. */
export function firstChars(text: string, chars: number): string {
  let index = 0;
  for (let left = chars; left > 0 && index < text.length; left -= 1) index += isPairAt(text, index) ? 2 : 1;
  return text.slice(0, index);
}

function isPairAt(text: string, index: number): boolean {
  const high = text.charCodeAt(index);
  if (high < 0xd800 || high > 0xdbff) return false;
  const low = text.charCodeAt(index + 1);
  return low >= 0xdc00 && low <= 0xdfff;
}
