import { isDelta, isEvent, type RunEvent, type StreamEvent } from "@runreel/client";
import { familyOf, fields, Texts, textOf, type SpanText } from "@runreel/client/fold";

/** A message or a model's reasoning, with its text so far. */
export interface Message {
  kind: "message" | "reasoning";
  /** Its span: the same from the first token to the end. */
  id: string;
  role: string;
  agent: string | null;
  text: string;
  /** It is still being written. */
  isOpen: boolean;
  /** Tokens were missed, which the end of the message will have; or an old text was shortened to bound memory. */
  isIncomplete: boolean;
  /** The seq of its durable event; null while it is open. */
  seq: number | null;
}

/** A call of a tool, from its start on. */
export interface ToolCall {
  kind: "tool";
  id: string;
  name: string;
  args: unknown;
  status: "running" | "completed" | "failed";
  /** Its output so far. */
  output: string;
  result: unknown;
  error: unknown;
  /** The seq of its start, or of its end if its start was not seen. */
  seq: number;
}

/** Calls beyond these are forgotten, oldest first; the texts of messages have a bound of their own. */
const tools_max = 10_000;

/** The messages and tool calls of one run, in the order of the log; open messages come last. */
export class Conversation {
  readonly #texts = new Texts();
  readonly #tools = new Map<string, ToolCall>();
  readonly #made = new WeakMap<SpanText, Message>();
  #shown: readonly (Message | ToolCall)[] = [];
  #isStale = false;

  /** Takes an event of a stream. */
  take(event: StreamEvent): void {
    if (isEvent(event)) this.#event(event);
    else if (event.type === "message.snapshot") this.#texts.snapshot(event);
    else if (event.type === "stream.end") this.#texts.close();
    else if (isDelta(event)) this.#texts.delta(event);
    else return;
    this.#isStale = true;
  }

  /** All items; the same object until something changed, and the same items until they did. */
  get shown(): readonly (Message | ToolCall)[] {
    if (this.#isStale) this.#shown = this.#show();
    this.#isStale = false;
    return this.#shown;
  }

  #event(event: RunEvent): void {
    this.#texts.event(event);
    if (familyOf(event.type) !== "tool" || event.type.endsWith(".delta")) return;
    const id = event.span_id ?? `#${event.seq}`;
    const { name, args, result, error } = fields(event.payload);
    const before = this.#tools.get(id);
    // A second start under the same span is another call.
    const isNew = before === undefined || event.type === "tool.started";
    const call: ToolCall = isNew
      ? {
          kind: "tool",
          id,
          name: "",
          args,
          status: "running",
          output: "",
          result: null,
          error: null,
          seq: event.seq,
        }
      : { ...before };
    call.name = textOf(name) ?? call.name;
    if (event.type === "tool.completed") Object.assign(call, { status: "completed", result: result ?? null });
    if (event.type === "tool.failed") Object.assign(call, { status: "failed", error: error ?? null });
    if (isNew) this.#tools.delete(id);
    this.#tools.set(id, call);
    if (this.#tools.size > tools_max) this.#tools.delete(this.#tools.keys().next().value as string);
  }

  #show(): readonly (Message | ToolCall)[] {
    const open = [...this.#texts.open.values()];
    for (const { family, span_id, text } of open) {
      const call = family === "tool" ? this.#tools.get(span_id) : undefined;
      if (call !== undefined && call.output !== text) this.#tools.set(span_id, { ...call, output: text });
    }
    const closed = [...this.#texts.done.map((text) => this.#message(text)), ...this.#tools.values()];
    closed.sort((one, other) => (one.seq as number) - (other.seq as number));
    const writing = open.filter(({ family }) => family !== "tool").map((text) => this.#message(text));
    return [...closed, ...writing];
  }

  #message(from: SpanText): Message {
    const before = this.#made.get(from);
    if (before?.text === from.text && before.isIncomplete === (from.hole || from.cut)) return before;
    const message: Message = {
      kind: from.family === "reasoning" ? "reasoning" : "message",
      id: from.span_id,
      role: from.role,
      agent: from.agent,
      text: from.text,
      isOpen: from.seq === null,
      isIncomplete: from.hole || from.cut,
      seq: from.seq,
    };
    this.#made.set(from, message);
    return message;
  }
}
