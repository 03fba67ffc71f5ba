import type { Interrupt } from "@runreel/client/fold";
import { transport } from "./client";

/** An open interrupt in the list over all runs. */
interface Entry {
  run_id: string;
  interrupt_id: string;
  seq: number;
  kind: string | null;
  prompt: string | null;
  expires_at: string | null;
  requested_at: string;
  may_answer: boolean;
  payload: unknown;
  run: { title: string | null; agent: string | null; role: string; thread_id: string | null };
}

export interface OpenInterrupt extends Interrupt {
  requested_at: string;
  may_answer: boolean;
  run: Entry["run"];
}

const page_interrupts = 100;

/** The open interrupts of all runs, oldest first; only the newest ones when there are more than a page. */
export async function openInterrupts(
  signal: AbortSignal,
): Promise<{ interrupts: OpenInterrupt[]; isMore: boolean }> {
  const query = { limit: page_interrupts };
  const page = await transport.json<{ interrupts: Entry[]; next_cursor?: string | null }>("/api/interrupts", {
    query,
    signal,
  });
  const interrupts = page.interrupts.map((each) => ({ ...each, kind: each.kind || "interrupt" })).reverse();
  return { interrupts, isMore: Boolean(page.next_cursor) };
}
