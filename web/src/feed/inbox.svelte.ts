import { FeedOrder, isEvent, RunreelError, withQuery, type Connection, type Problem } from "@runreel/client";
import { familyOf, isTerminal, statusAfter } from "@runreel/client/fold";
import { openInterrupts, type OpenInterrupt } from "../api/interrupts";
import { follow } from "./follower";

const soon_ms = 250;
/** The types of events that change the list. */
const types = "interrupt.*,run.completed,run.failed,run.cancelled";

/** The open interrupts of all runs. Every page shows their number; the inbox page follows them live. */
class Inbox {
  list = $state.raw<readonly OpenInterrupt[]>([]);
  isMore = $state(false);
  loaded = $state(false);
  problem = $state.raw<Problem | null>(null);
  connection = $state.raw<Connection>({ state: "connecting", gap: null });
  /** Called for each interrupt that is new since the last request. */
  onnew: ((asked: OpenInterrupt) => void) | null = null;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #running: AbortController | null = null;
  /** Whether to request the list once more after the current request. */
  #isBehind = false;

  /** Takes an event of any stream of the page. */
  hear(type: string): void {
    const status = statusAfter(type);
    if (familyOf(type) === "interrupt" || (status !== null && isTerminal(status) && this.list.length > 0))
      this.look(soon_ms);
  }

  look(after_ms = 0): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      void this.#look();
    }, after_ms);
  }

  /** Forgets the list after a change of the token: another person may see other interrupts. */
  forget(): void {
    this.#running?.abort();
    this.#running = null;
    this.list = [];
    this.loaded = false;
    this.look();
  }

  /** Follows the list until the returned function is called. */
  follow(): () => void {
    const { stop } = follow({
      path: (cursor) =>
        withQuery("/api/stream/runs", { tokens: "false", types, tail: cursor === null ? 0 : null }),
      order: new FeedOrder(),
      take: ({ event }) => {
        if (isEvent(event) || event.type === "stream.caught_up" || event.type === "stream.gap")
          this.look(soon_ms);
      },
      commit: () => undefined,
      changed: (connection) => {
        this.connection = connection;
        if (connection.state === "failed") this.problem = connection.error.problem;
      },
    });
    this.look();
    return stop;
  }

  async #look(): Promise<void> {
    if (this.#running !== null) {
      this.#isBehind = true;
      return;
    }
    const abort = (this.#running = new AbortController());
    try {
      const { interrupts, isMore } = await openInterrupts(abort.signal);
      if (!abort.signal.aborted) this.#put(interrupts, isMore);
    } catch (error) {
      if (error instanceof RunreelError && !abort.signal.aborted) this.problem = error.problem;
    }
    if (this.#running !== abort) return;
    this.#running = null;
    if (this.#isBehind) this.look(soon_ms);
    this.#isBehind = false;
  }

  #put(interrupts: OpenInterrupt[], isMore: boolean): void {
    const known = new Set(this.list.map(keyOf));
    const fresh = this.loaded ? interrupts.filter((each) => !known.has(keyOf(each))) : [];
    this.list = interrupts;
    this.isMore = isMore;
    this.loaded = true;
    this.problem = null;
    for (const each of fresh) this.onnew?.(each);
  }
}

export const keyOf = ({ run_id, interrupt_id }: { run_id: string; interrupt_id: string }): string =>
  `${run_id} ${interrupt_id}`;

export const inbox = new Inbox();
