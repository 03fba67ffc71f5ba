import { StreamSet, type Subscription } from "./streamset";
import type { StreamRequest } from "./streamrequest";

/** What a tab says. Streams have ids that no other tab gives. */
export type Asked =
  | { kind: "open"; id: string; wanted: StreamRequest; cursor: string | null; token: string | null }
  | { kind: "close"; id: string }
  /** So many characters of it were read. */
  | { kind: "read"; id: string; chars: number }
  /** The tab is gone. */
  | { kind: "bye" };

/** What a tab is told. */
export type Said =
  /** How its request was answered; 0 is not at all. `text` is the body of a refusal. */
  | { kind: "answer"; id: string; status: number; text: string }
  | { kind: "text"; id: string; text: string }
  /** There is no more of it; it may be asked for again, after its last cursor. */
  | { kind: "cut"; id: string }
  /** The server is there: whoever waits need not wait longer. */
  | { kind: "again" };

export type Tell = (said: Said) => void;
export type Ask = (body: string, token: string | null, signal: AbortSignal) => Promise<Response>;

/** Characters that a tab may leave unread. What it has not read it asks for again when it wakes. */
const unread_chars_max = 8_000_000;

/**
 * The streams of all tabs, on one connection for each token. It owns no stream's order: a tab whose stream was cut asks
 * again, after what it has.
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

  /** A tab that is there until it says goodbye; returns what hears it. */
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
    // Who did not know whether it was heard asks twice.
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
        (isThere) => this.#told(isThere),
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

  #told(isThere: boolean): void {
    if (isThere && this.#isAway) for (const tell of this.#tabs) tell({ kind: "again" });
    this.#isAway = !isThere;
  }
}

/** How a hub asks the server that its page came from. */
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
