import type { RunreelError } from "./errors.js";
import type { Gap } from "./events.js";

/**
 * What the connection of a stream is doing:
 *
 * - `idle`: reading has not begun
 * - `connecting`: the first request is on its way
 * - `catching-up`: stored events are being read
 * - `live`: everything stored has been read; new events arrive as they are committed
 * - `reconnecting`: it was cut off, and reconnects at `retryAt` (a clock time, ms) for the `attempt`-th time since the
 *   last event; `error` is the reason, undefined after a plain cut
 * - `paused`: `pause()` closed the connection
 * - `ended`: the run (the tree) has ended, and all of it was read
 * - `failed`: the server refused, and a retry would not help: `error` says what to do
 * - `closed`: its reader left
 */
export type State =
  | { state: "idle" | "connecting" | "catching-up" | "live" | "paused" | "ended" | "closed" }
  | { state: "reconnecting"; retryAt: number; attempt: number; error: unknown }
  | { state: "failed"; error: RunreelError };

/** The state, and the last gap: events that were deleted before this stream read them; null if nothing is missing. */
export type Connection = State & { gap: Gap | null };

/** A store of the connection's state, in the form that `useSyncExternalStore` and Svelte's `readable` take. */
export class Status {
  #current: Connection = { state: "idle", gap: null };
  readonly #listeners = new Set<() => void>();

  /** Calls `listener` after each change, until the returned function is called. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  /** The state now; the same object until it changes. */
  readonly getSnapshot = (): Connection => this.#current;

  /** @internal */
  set(next: State, gap = this.#current.gap): void {
    this.#current = { ...next, gap };
    for (const listener of [...this.#listeners]) listener();
  }
}
