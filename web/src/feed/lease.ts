import type { Run } from "@runreel/client";

/** As often as this at most, and at least, whatever the leases are. */
const look_ms_min = 1_000;
const look_ms_max = 15_000;

/** After how long to look again whether a producer fell silent; `null` when none of these has a lease to break. */
export function lookAfter_ms(runs: readonly Run[]): number | null {
  let wait_ms: number | null = null;
  for (const run of runs) {
    if (run.status !== "running" || typeof run.lease_ms !== "number") continue;
    // One that fell silent may be heard again.
    const half_ms = run.stalled ? look_ms_max : run.lease_ms / 2;
    wait_ms = Math.min(wait_ms ?? look_ms_max, Math.max(look_ms_min, half_ms));
  }
  return wait_ms;
}

/**
 * Looks at runs again while producers hold leases on them. That a producer is alive makes no event, and that
 * it is not makes none either, so a page that stays open has to ask.
 */
export class LeaseWatch {
  #timer: ReturnType<typeof setTimeout> | null = null;
  #isStopped = false;
  readonly #look: () => Promise<void>;

  constructor(look: () => Promise<void>) {
    this.#look = look;
  }

  /** Sees to it that there is a next look, when these runs need one. */
  watch(runs: readonly Run[]): void {
    if (this.#timer !== null || this.#isStopped) return;
    const wait_ms = lookAfter_ms(runs);
    if (wait_ms !== null) this.#timer = setTimeout(() => this.#due(wait_ms), wait_ms);
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  #due(wait_ms: number): void {
    this.#timer = null;
    // A tab that nobody sees asks when it is seen again.
    if (document.visibilityState === "hidden") this.#timer = setTimeout(() => this.#due(wait_ms), wait_ms);
    else void this.#look();
  }
}
