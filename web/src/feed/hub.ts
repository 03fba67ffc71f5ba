import { StreamSet, type Subscription } from "./streamset";
import type { StreamRequest } from "./streamrequest";

/** A message of a tab. The ids of streams are unique across tabs. */
export type Asked =
  | { kind: "open"; id: string; wanted: StreamRequest; cursor: string | null; token: string | null }
  | { kind: "close"; id: string }
  /** The number of characters of the stream that were read. */
  | { kind: "read"; id: string; chars: number }
  /** The tab is gone. */
  | { kind: "bye" };

/** A message to a tab. */
export type Said =
  /** The status of its request; 0 is no answer. `text` is the body of a refusal. */
  | { kind: "answer"; id: string; status: number; text: string }
  | { kind: "text"; id: string; text: string }
  /** The stream was cut; it may be opened again after its last cursor. */
  | { kind: "cut"; id: string }
  /** The server is reachable again: streams that wait may retry now. */
  | { kind: "again" };

export type Tell = (said: Said) => void;
export type Ask = (body: string, token: string | null, signal: AbortSignal) => Promise<Response>;

/** Maximum characters that a tab may leave unread. Beyond that its stream is cut, and it asks again when it wakes. */
const unread_chars_max = 8_000_000;

/**
 * The streams of all tabs, on one connection for each token, and more if there are many streams. It does not order
 * events: a tab whose stream was cut asks again, after its cursor.
 */
export class Hub {
  readonly #ask: Ask;
  #isAway = false;
  readonly #tabs = new Set<Tell>();
  readonly #wires = new Map<string | null, StreamSet[]>();
  readonly #opened = new Map<
    string,
    { subscription: Subscription; wire: StreamSet; tell: Tell; unread: number }
  >();

  constructor(ask: Ask) {
    this.#ask = ask;
  }

  /** Adds a tab until it sends `bye`; returns the function that takes its messages. */
  join(tell: Tell): (asked: Asked) => void {
    this.#tabs.add(tell);
    return (asked) => {
      if (asked.kind === "open") this.#open(asked, tell);
      else if (asked.kind === "close") this.#close(asked.id);
      else if (asked.kind === "read") this.#read(asked.id, asked.chars);
      else this.#leave(tell);
    };
  }

  #open({ id, wanted, cursor, token }: Extract<Asked, { kind: "open" }>, tell: Tell): void {
    // A tab that does not know whether its message arrived sends it again.
    if (this.#opened.has(id)) return;
    const subscription: Subscription = {
      wanted,
      cursor,
      isCaughtUp: false,
      isAnswered: false,
      answer: (status, text) => tell({ kind: "answer", id, status, text }),
      text: (text) => {
        tell({ kind: "text", id, text });
        this.#unread(id, text.length);
      },
      over: (isCut) => {
        this.#opened.delete(id);
        if (isCut) tell({ kind: "cut", id });
      },
    };
    const wires = this.#wires.get(token) ?? [];
    this.#wires.set(token, wires);
    let wire = wires.find((each) => each.hasRoom);
    if (wire === undefined) {
      wire = new StreamSet(
        (body, signal) => this.#ask(body, token, signal),
        (isThere) => this.#noteServer(isThere),
      );
      wires.push(wire);
    }
    this.#opened.set(id, { subscription, wire, tell, unread: 0 });
    wire.add(subscription);
  }

  #close(id: string): void {
    const opened = this.#opened.get(id);
    if (opened === undefined) return;
    this.#opened.delete(id);
    opened.wire.remove(opened.subscription);
    for (const [token, wires] of this.#wires) {
      const kept = wires.filter((wire) => !wire.isEmpty);
      if (kept.length === 0) this.#wires.delete(token);
      else this.#wires.set(token, kept);
    }
  }

  #unread(id: string, chars: number): void {
    const opened = this.#opened.get(id);
    if (opened === undefined) return;
    opened.unread += chars;
    if (opened.unread <= unread_chars_max) return;
    this.#close(id);
    opened.tell({ kind: "cut", id });
  }

  #read(id: string, chars: number): void {
    const opened = this.#opened.get(id);
    if (opened !== undefined) opened.unread -= chars;
  }

  #leave(tell: Tell): void {
    this.#tabs.delete(tell);
    for (const [id, opened] of this.#opened) if (opened.tell === tell) this.#close(id);
  }

  #noteServer(isThere: boolean): void {
    if (isThere && this.#isAway) for (const tell of this.#tabs) tell({ kind: "again" });
    this.#isAway = !isThere;
  }
}

/** Sends a hub's request to the page's own server. */
export const ask: Ask = (body, token, signal) =>
  fetch("/api/stream", {
    method: "POST",
    headers: {
      accept: "text/event-stream",
      "content-type": "application/json",
      ...(token !== null && { authorization: `Bearer ${token}` }),
    },
    body,
    cache: "no-store",
    signal,
  });
