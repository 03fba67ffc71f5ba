import { fields, messageText, textOf } from "@runreel/client/fold";

/** The text of a run's output; null if it has none. */
export function outputText(output: unknown): string | null {
  const { text, answer, message, content } = fields(output);
  return textOf(output) ?? messageText({ content }) ?? textOf(text) ?? textOf(answer) ?? textOf(message);
}
