import type { RunEvent } from "@runreel/client";
import { familyOf, fields, messageText, textOf } from "@runreel/client/fold";
import { errorOf } from "./read";

/** Tokens of the calls of models; a number that no call told is null. */
export interface Tokens {
  calls: number;
  input: number | null;
  output: number | null;
}

const models_max = 8;
const error_chars_max = 2_000;

/** What a person asks of a run first: what it used, what it answered, what went wrong. */
export class Facts {
  readonly models: string[] = [];
  readonly tokens: Tokens = { calls: 0, input: null, output: null };
  /** The last error, and its event. */
  error: { seq: number; type: string; text: string } | null = null;
  /** The last message of the run itself, and its event. */
  answer: { seq: number; text: string } | null = null;

  take(event: RunEvent): void {
    const family = familyOf(event.type);
    const isFailure = event.type.endsWith(".failed");
    const isEnd = isFailure || event.type.endsWith(".completed");
    if (!isEnd && event.type !== "log.error") return;
    if (isFailure || event.type === "log.error") {
      const text = errorOf(event.payload).slice(0, error_chars_max);
      // How the run failed is told last, and often in fewer words.
      if (text !== "" || this.error === null) this.error = { seq: event.seq, type: event.type, text };
    }
    const payload = fields(event.payload);
    if (event.type === "message.completed" && (textOf(payload["role"]) ?? "assistant") === "assistant") {
      const text = messageText(payload);
      if (text) this.answer = { seq: event.seq, text };
    }
    if (family === "run" || family === "worker" || !("usage" in payload)) return;
    this.#call(payload["model"], fields(payload["usage"]));
  }

  #call(model: unknown, usage: Record<string, unknown>): void {
    if (typeof model === "string" && this.models.length < models_max && !this.models.includes(model))
      this.models.push(model);
    const { tokens } = this;
    tokens.calls += 1;
    tokens.input = plus(tokens.input, usage["input_tokens"] ?? usage["prompt_tokens"]);
    tokens.output = plus(tokens.output, usage["output_tokens"] ?? usage["completion_tokens"]);
  }
}

const plus = (sum: number | null, told: unknown): number | null =>
  typeof told === "number" && Number.isFinite(told) ? (sum ?? 0) + told : sum;

/** The text of a run's output, when it is one for people. */
export function outputText(output: unknown): string | null {
  const { text, answer, message, content } = fields(output);
  return textOf(output) ?? messageText({ content }) ?? textOf(text) ?? textOf(answer) ?? textOf(message);
}
