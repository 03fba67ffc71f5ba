import type { RunEvent } from "./events.js";

/** What an event is to a stream: the next one, one that was yielded before, or one after missing events. */
export type Taken = "new" | "seen" | "hole";

/**
 * Decides whether an event is the next one. It owns the cursor: the `Last-Event-ID` of a reconnect is always
 * the id of the last event that was yielded, whatever happened on the wire in between.
 */
export interface Order {
  readonly cursor: string | null;
  take(event: RunEvent, id: string | null): Taken;
  /** Everything before `seq` was deleted; the next event may be `seq`. */
  skipTo(seq: number): void;
  /** Everything stored was read: up to a seq in a run, up to a cursor in a feed. */
  caughtUp(last_seq: number | null, cursor: string | null): void;
}

/**
 * One run: seq 1, 2, 3 …, each exactly once, nothing skipped. `after` is the id it begins after. With `isSparse` it
 * gets only some of the events (certain types, or a tail), so that a missing seq means nothing.
 */
export class RunOrder implements Order {
  #last: number;
  #cursor: string | null;
  readonly #isSparse: boolean;
  /** From which seq on the ids end in which tag: a log that was set back continues as another history. */
  readonly #tags: { from: number; tag: string }[] = [];

  constructor(after: string | null = null, isSparse = false) {
    this.#cursor = after;
    this.#last = parseInt(after ?? "0") || 0;
    this.#isSparse = isSparse;
  }

  get cursor(): string | null {
    return this.#cursor;
  }

  take(event: RunEvent, id: string | null): Taken {
    if (event.seq <= this.#last) return "seen";
    if (event.seq > this.#last + 1 && !this.#isSparse) return "hole";
    this.#last = event.seq;
    this.#cursor = id || String(event.seq);
    const tag = this.#cursor.slice(String(event.seq).length);
    if (tag !== (this.#tags.at(-1)?.tag ?? "")) this.#tags.push({ from: event.seq, tag });
    return "new";
  }

  /** The id of an event's frame, as the server sends it. */
  idOf(seq: number): string {
    return `${seq}${this.#tags.filter((since) => since.from <= seq).at(-1)?.tag ?? ""}`;
  }

  skipTo(seq: number): void {
    this.#last = Math.max(this.#last, seq - 1);
  }

  caughtUp(last_seq: number | null): void {
    // Otherwise only `take` moves the cursor. Without this, a tail that showed nothing would resume at a later end.
    if (!this.#isSparse || last_seq === null || last_seq <= this.#last) return;
    this.#last = last_seq;
    this.#cursor = this.idOf(last_seq);
  }
}

/** Runs whose last seq a feed remembers. */
const feedRunsMax = 10_000;

/**
 * Many runs: ids are opaque, so the cursor is the last id read. A feed joins a run at any seq, so a hole
 * cannot be detected; a seq that was seen is still never yielded twice.
 */
export class FeedOrder implements Order {
  #cursor: string | null;
  readonly #lastSeq = new Map<string, number>();

  constructor(after: string | null = null) {
    this.#cursor = after;
  }

  get cursor(): string | null {
    return this.#cursor;
  }

  take(event: RunEvent, id: string | null): Taken {
    if (id) this.#cursor = id;
    if (event.seq <= (this.#lastSeq.get(event.run_id) ?? 0)) return "seen";
    // Re-inserted, so that the map's order is the order of last use and its first key the one to forget.
    this.#lastSeq.delete(event.run_id);
    this.#lastSeq.set(event.run_id, event.seq);
    if (this.#lastSeq.size > feedRunsMax) this.#lastSeq.delete(this.#lastSeq.keys().next().value as string);
    return "new";
  }

  skipTo(): void {
    // A gap in a feed belongs to one run of many and does not move the cursor.
  }

  caughtUp(_: number | null, cursor: string | null): void {
    this.#cursor = cursor ?? this.#cursor;
  }
}
