import type { components } from "@runreel/client";
import { transport } from "./client";
import { runPath } from "./paths";

export type RunUsage = components["schemas"]["RunUsage"];
export type CallUsage = components["schemas"]["CallUsage"];

/** What a run used, with its first calls of models. */
export const usageOf = (run_id: string, limit: number, signal: AbortSignal): Promise<RunUsage> =>
  transport.json(`${runPath(run_id)}/usage`, { query: { limit }, signal });
