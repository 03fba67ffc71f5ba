import { isDelta, isEvent, type Fields, type RunEvent, type StreamEvent } from "@runreel/client";
import { asSaid, noted, textOf, type Said } from "./words.js";

interface Text {
  id: string;
  isReasoning: boolean;
  sent: string;
}

/** Converts the log of one run to AG-UI: stored events, and the tokens of open texts. */
export class Replay {
  readonly #about: { threadId: string; runId: string };
  readonly #messages: unknown[] = [];
  readonly #texts = new Map<string, Text>();
  readonly #steps: string[] = [];
  #out: Said[] = [];
  #hasBegun = false;

  constructor(threadId: string, runId: string) {
    this.#about = { threadId, runId };
  }

  /** The AG-UI events for one event of the stream; none for most control frames. */
  take(event: StreamEvent): Said[] {
    this.#out = [];
    if (isEvent(event)) this.#event(event);
    else if (isDelta(event)) {
      this.#text(event.span_id as string, event.type, (sent) =>
        event.payload.offset === [...sent].length ? sent + event.payload.text : sent,
      );
    } else if (event.type === "message.snapshot") {
      this.#text(event.span_id, event.delta_type, () => event.text);
    } else if (event.type === "stream.caught_up") this.#begin();
    return this.#out;
  }

  #event(event: RunEvent): void {
    const { type, span_id = "" } = event;
    const payload = event.payload as Fields;
    const isOfClient = payload["role"] === "user" || payload["role"] === "tool";
    if (type === "run.created" || type === "run.started") return;
    if (type === "message.completed" && isOfClient && !this.#hasBegun) {
      this.#messages.push(messageOf(span_id, payload));
      return;
    }
    this.#begin();
    if (type === "message.completed") this.#completed(span_id, "message.delta", contentOf(payload), payload);
    else if (type === "reasoning.completed")
      this.#completed(span_id, "reasoning.delta", textOf(payload["text"]), payload);
    else if (type.startsWith("tool.")) this.#tool(event, payload);
    else if (type === "step.started") this.#step(textOf(payload["name"]));
    else if (type === "step.completed" || type === "step.failed") this.#stepEnded(textOf(payload["name"]));
    else if (type === "run.completed")
      this.#ended({ type: "RUN_FINISHED", ...this.#about, ...outcomeOf(payload) });
    else if (type === "run.cancelled") this.#ended({ type: "RUN_FINISHED", ...this.#about });
    else if (type === "run.failed") this.#ended({ type: "RUN_ERROR", ...errorOf(payload["error"]) });
    else this.#noted(type, payload);
  }

  #begin(): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    const rest = { tools: [], context: [], state: {}, forwardedProps: {} };
    const input = { ...this.#about, messages: this.#messages, ...rest };
    this.#out.push({ type: "RUN_STARTED", ...this.#about, input });
  }

  /** `next` makes the whole text from the part sent so far; if it does not continue that, nothing is sent. */
  #text(
    span_id: string,
    delta_type: string,
    next: (sent: string) => string,
    id = span_id,
    role = "assistant",
  ): Text {
    this.#begin();
    const isReasoning = delta_type === "reasoning.delta";
    const kind = isReasoning ? "REASONING_MESSAGE" : "TEXT_MESSAGE";
    let text = this.#texts.get(span_id);
    if (text === undefined) {
      text = { id, isReasoning, sent: "" };
      this.#texts.set(span_id, text);
      if (isReasoning) this.#out.push({ type: "REASONING_START", messageId: id });
      this.#out.push({ type: `${kind}_START`, messageId: id, role: isReasoning ? "reasoning" : role });
    }
    const whole = next(text.sent);
    if (whole.length > text.sent.length && whole.startsWith(text.sent)) {
      const delta = whole.slice(text.sent.length);
      this.#out.push({ type: `${kind}_CONTENT`, messageId: text.id, delta });
      text.sent = whole;
    }
    return text;
  }

  #completed(span_id: string, delta_type: string, whole: string, payload: Fields): void {
    const id = textOf(payload["message_id"]) || span_id;
    this.#text(span_id, delta_type, () => whole, id, textOf(payload["role"]) || "assistant");
    this.#close(span_id);
  }

  #close(span_id: string): void {
    const text = this.#texts.get(span_id);
    if (text === undefined) return;
    this.#texts.delete(span_id);
    const { id: messageId, isReasoning } = text;
    this.#out.push({ type: isReasoning ? "REASONING_MESSAGE_END" : "TEXT_MESSAGE_END", messageId });
    if (isReasoning) this.#out.push({ type: "REASONING_END", messageId });
  }

  #tool(event: RunEvent, payload: Fields): void {
    const { type, span_id, parent_span_id: parentMessageId } = event;
    const toolCallId = textOf(payload["tool_call_id"]) || (span_id ?? "");
    if (type === "tool.started") {
      const parent = parentMessageId ? { parentMessageId } : {};
      const toolCallName = textOf(payload["name"]);
      this.#out.push({ type: "TOOL_CALL_START", toolCallId, toolCallName, ...parent });
      this.#out.push({ type: "TOOL_CALL_ARGS", toolCallId, delta: plain(payload["args"] ?? {}) });
      this.#out.push({ type: "TOOL_CALL_END", toolCallId });
      return;
    }
    const messageId = textOf(payload["message_id"]) || `${toolCallId}.result`;
    const content = plain(type === "tool.failed" ? payload["error"] : payload["result"]);
    this.#out.push({ type: "TOOL_CALL_RESULT", messageId, toolCallId, content, role: "tool" });
  }

  #step(stepName: string): void {
    this.#steps.push(stepName);
    this.#out.push({ type: "STEP_STARTED", stepName });
  }

  #stepEnded(stepName: string): void {
    const at = this.#steps.lastIndexOf(stepName);
    if (at < 0) return;
    this.#steps.splice(at, 1);
    this.#out.push({ type: "STEP_FINISHED", stepName });
  }

  #noted(type: string, payload: Fields): void {
    const word = type.startsWith("agui.") ? type.slice("agui.".length).toUpperCase() : "";
    if (noted.has(word)) this.#out.push(asSaid(word, payload));
  }

  /** Closes everything before the end of the run, also what its process left open. */
  #ended(end: Said): void {
    for (const span_id of [...this.#texts.keys()]) this.#close(span_id);
    for (const step of [...this.#steps]) this.#stepEnded(step);
    this.#out.push(end);
  }
}

/** A message of the client, as it was before it was recorded. */
function messageOf(span_id: string, payload: Fields): unknown {
  const { role, content, tool_call_id: toolCallId } = payload;
  const id = textOf(payload["message_id"]) || span_id;
  const isPlain = Array.isArray(content) && content.every((part) => (part as Fields)["type"] === "text");
  return {
    id,
    role,
    content: isPlain ? contentOf(payload) : content,
    ...(role === "tool" && { toolCallId }),
  };
}

function contentOf({ content, text }: Fields): string {
  if (!Array.isArray(content)) return textOf(content) || textOf(text);
  return content.map((part) => textOf((part as Fields)["text"])).join("");
}

const plain = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

function outcomeOf({ result, outcome }: Fields): Fields {
  return { ...(result !== undefined && { result }), ...(outcome !== undefined && { outcome }) };
}

function errorOf(error: unknown): Fields {
  const { message, code } = (
    typeof error === "object" && error !== null ? error : { message: error }
  ) as Fields;
  return { message: textOf(message) || "the run failed", ...(typeof code === "string" && { code }) };
}
