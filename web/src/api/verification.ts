import type { components } from "@runreel/client";
import { transport } from "./client";
import { runPath } from "./paths";

export type Verification = components["schemas"]["Verification"];

/** Verifies the log of a run, in as many requests as it takes; `onpart` is called after each but the last. */
export async function verificationOf(
  run_id: string,
  onpart: (part: Verification) => void,
  signal: AbortSignal,
): Promise<Verification> {
  let covered_from: number | null = null;
  for (let after = 0; ;) {
    const query = { after };
    const part: Verification = await transport.json(`${runPath(run_id)}/verify`, { query, signal });
    covered_from ??= part.covered_from ?? null;
    if (part.state !== "partial") return { ...part, covered_from };
    onpart(part);
    after = part.checked_to;
  }
}
