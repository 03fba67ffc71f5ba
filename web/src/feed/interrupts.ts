import type { Interrupt } from "@runreel/client/fold";
import { fields, textOf } from "@runreel/client/fold";
import { atMs, titleOf } from "./read";

/** What a person reads of an interrupt. */
export interface Asked {
  prompt: string;
  expires_ms: number | null;
  /** The members that have something else to say to a person. */
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
    ...details
  } = fields(payload);
  const told = prompt || textOf(payload) || titleOf("interrupt.requested", payload);
  const json = JSON.stringify(payload);
  return {
    prompt: told || json.slice(0, short_chars),
    expires_ms: atMs(expires_at ?? "") || null,
    // Nothing is told twice.
    details: told || json.length > short_chars ? Object.entries(details) : [],
  };
}
