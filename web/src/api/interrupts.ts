import type { Interrupt } from "@runreel/client/fold";
import { transport } from "./client";

/** What a run asks now, as the list over all runs tells it. */
interface Told {
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
  run: Told["run"];
}

const page_interrupts = 100;

/** The open interrupts of all runs, the oldest question first; the newest ones when there are very many. */
export async function openInterrupts(
  signal: AbortSignal,
): Promise<{ interrupts: OpenInterrupt[]; isMore: boolean }> {
  const query = { limit: page_interrupts };
  const page = await transport.json<{ interrupts: Told[]; next_cursor?: string | null }>("/api/interrupts", {
    query,
    signal,
  });
  const interrupts = page.interrupts.map((told) => ({ ...told, kind: told.kind || "interrupt" })).reverse();
  return { interrupts, isMore: Boolean(page.next_cursor) };
}
