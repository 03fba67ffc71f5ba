import type { RunEvent } from "../api/types";

export type Taken = "new" | "seen" | "hole";

/**
 * Decides whether an event is the next one. It owns the cursor: what a reconnect sends as `Last-Event-ID`
 * is always the id of the last event that was handed on, whatever the wire did in between.
 */
export interface Order {
  readonly cursor: string | null;
  take(event: RunEvent, id: string | null): Taken;
  /** The server said that everything before `seq` is gone; the next event may be `seq`. */
  skipTo(seq: number): void;
  /** A replay without events still moves the cursor of a feed. */
  moveTo(cursor: string): void;
}

/** One run: seq 1, 2, 3 …, each exactly once, nothing skipped. */
export class RunOrder implements Order {
  #last = 0;
  #cursor: string | null = null;
  /** From which seq on ids end in which tag: a log that was set back continues as another history. */
  readonly #tags: { from: number; tag: string }[] = [];

  get cursor(): string | null {
    return this.#cursor;
  }

  take(event: RunEvent, id: string | null): Taken {
    if (event.seq <= this.#last) return "seen";
    if (event.seq > this.#last + 1) return "hole";
    this.#last = event.seq;
    this.#cursor = id === null || id === "" ? String(event.seq) : id;
    const tag = this.#cursor.slice(String(event.seq).length);
    if (tag !== (this.#tags.at(-1)?.tag ?? "")) this.#tags.push({ from: event.seq, tag });
    return "new";
  }

  /** The id of an event's frame, as the server gave it or would. */
  idOf(seq: number): string {
    return `${seq}${this.#tags.filter((since) => since.from <= seq).at(-1)?.tag ?? ""}`;
  }

  skipTo(seq: number): void {
    this.#last = Math.max(this.#last, seq - 1);
  }

  moveTo(): void {
    // A run's cursor is the id of its last event; `take` alone moves it.
  }
}

/** Runs whose last seq a feed remembers. */
const feedRunsMax = 10_000;

/**
 * Many runs: ids are opaque, so the cursor is the last id read. A run is joined wherever the feed stands,
 * hence no hole can be told from here; a seq that was seen is still never handed on twice.
 */
export class FeedOrder implements Order {
  #cursor: string | null = null;
  readonly #lastSeq = new Map<string, number>();

  get cursor(): string | null {
    return this.#cursor;
  }

  take(event: RunEvent, id: string | null): Taken {
    if (id !== null && id !== "") this.#cursor = id;
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

  moveTo(cursor: string): void {
    this.#cursor = cursor;
  }
}
