import type { Interrupt } from "@runreel/client/fold";
import { fields, textOf } from "@runreel/client/fold";
import { atMs } from "./read";

/** An interrupt as shown to a person. */
export interface Asked {
  prompt: string;
  expires_ms: number | null;
  /** Answers to choose from. */
  options: { label: string; value: unknown }[];
  /** The arguments, if the run accepts edited ones; otherwise undefined. */
  edited: unknown;
  /** The other members to show. */
  details: [string, unknown][];
}

const short_chars = 300;

export function askedBy({ payload, prompt, expires_at }: Interrupt): Asked {
  const {
    kind: _,
    prompt: __,
    expires_at: ___,
    checkpoint_id: ____,
    ns: _____,
    options,
    allowed_decisions,
    ...details
  } = fields(payload);
  const isEditable = Array.isArray(allowed_decisions) && allowed_decisions.includes("edit");
  const { title, name, message, question, reason } = details;
  const words = [prompt, payload, title, name, message, question, reason].map(textOf);
  const own = words.find((text) => text);
  const json = JSON.stringify(payload);
  return {
    prompt: own || json.slice(0, short_chars),
    expires_ms: atMs(expires_at ?? "") || null,
    options: optionsOf(options),
    edited: isEditable ? details["args"] : undefined,
    // Empty if the prompt is the whole payload.
    details: own || json.length > short_chars ? Object.entries(details) : [],
  };
}

const options_max = 20;

/** The options that are texts, or objects with a `label` and a `value`; anything else is left out. */
function optionsOf(options: unknown): Asked["options"] {
  if (!Array.isArray(options)) return [];
  const labels = new Set<string>();
  const choices = options.slice(0, options_max).flatMap((option: unknown) => {
    const { label, title, value, id } = fields(option);
    const name = textOf(option) ?? textOf(label) ?? textOf(title) ?? textOf(value) ?? textOf(id);
    if (name === null || labels.has(name)) return [];
    labels.add(name);
    return [{ label: name, value: textOf(option) ?? value ?? id ?? name }];
  });
  return choices;
}
