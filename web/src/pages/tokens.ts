import type { Token } from "@runreel/client";
import { until } from "../ui/format";
import { ago } from "../ui/time";

const day_ms = 86_400_000;

export const day_s = 86_400;

/** The lifetimes of a new token: days, and a label. Null means no expiry. */
export const lives: readonly [number | null, string][] = [
  [1, "1 day"],
  [7, "7 days"],
  [30, "30 days"],
  [90, "90 days"],
  [365, "1 year"],
  [null, "never"],
];

export const scopes: readonly [string, string][] = [
  ["read", "read runs, streams, artifacts and threads"],
  ["emit", "create runs, emit events, upload artifacts"],
  ["approve", "answer what a run asks"],
  ["admin", "everything, also deletion and API tokens"],
];

type Ended = Pick<Token, "expires_at" | "revoked_at">;

export function hasEnded({ expires_at, revoked_at }: Ended, now_ms: number): boolean {
  return Boolean(revoked_at) || (expires_at ? Date.parse(expires_at) <= now_ms : false);
}

/** When a token ends or how it ended; the date unless it is near. */
export function endOf(token: Ended, now_ms: number): string {
  if (token.revoked_at) return `revoked ${ago(Date.parse(token.revoked_at), now_ms)}`;
  if (!token.expires_at) return "never";
  const end_ms = Date.parse(token.expires_at);
  if (end_ms <= now_ms) return `expired ${ago(end_ms, now_ms)}`;
  return end_ms - now_ms < day_ms ? until(end_ms, now_ms) : token.expires_at.slice(0, 10);
}

/** What a token is limited to. */
export function limitOf({ run_id, tree, thread_id }: Pick<Token, "run_id" | "tree" | "thread_id">): string {
  if (thread_id) return `thread ${thread_id}`;
  if (!run_id) return "–";
  return tree ? "run and descendants" : "run";
}
