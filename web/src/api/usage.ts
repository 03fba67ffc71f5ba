import type { components } from "@runreel/client";
import { transport } from "./client";
import { runPath } from "./paths";

export type RunUsage = components["schemas"]["RunUsage"];
export type CallUsage = components["schemas"]["CallUsage"];

/** A run's usage, with a page of its model calls. */
export const usageOf = (
  run_id: string,
  page: { limit: number; cursor?: string | null },
  signal: AbortSignal,
): Promise<RunUsage> => transport.json(`${runPath(run_id)}/usage`, { query: page, signal });
