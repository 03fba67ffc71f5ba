import type { RunreelRunner } from "@runreel/copilotkit";

export interface Gate {
    /** Lets everything go on that waits now. */
    open: () => void;
}

/** A runtime on a port of its own, with the agent `scripted`. */
export function serve(
    runreel: string,
    lease_ms: number,
): Promise<{ url: string; runner: RunreelRunner; gate: Gate; close: () => void }>;
