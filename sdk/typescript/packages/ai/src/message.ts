import type { UIMessage, UIMessageChunk } from "ai";

/** A text or a reasoning of the message. */
interface Text {
  kind: "text" | "reasoning";
  /** The id that the reader knows it by. */
  id: string;
  /** What the reader has of it. */
  said: string;
  isOpen: boolean;
  /** What this connection has said of it. */
  heard: string;
}

type Kind = Text["kind"];
type Part = UIMessage["parts"][number];

/**
 * One message over several connections. Each but the first says it from the beginning again, perhaps in other pieces and
 * with texts in another place among the rest; what the reader has is left out.
 */
export class Message {
  #id: string | undefined;
  #isAgain = false;
  readonly #texts = new Map<string, Text>();
  /** Of everything that is not a text, how often the reader got it, and how often this connection may still say it. */
  readonly #got = new Map<string, number>();
  #expected = new Map<string, number>();
  /** The texts of a message that goes on, which the reader had before the first connection; and those still to come. */
  readonly #before: { kind: Kind; text: string }[] = [];
  #ahead: { kind: Kind; text: string }[] = [];
  /** A text that ended as another one than the reader has. */
  #unfit: Text | null = null;
  /** A text that may be the first of those ahead. */
  #held: { kind: Kind; id: string; heard: string } | null = null;

  /** `goesOn` is what the reader has of a message that a post continues. */
  constructor(goesOn?: UIMessage) {
    if (goesOn === undefined) return;
    this.#id = goesOn.id;
    this.#count("start");
    for (const part of goesOn.parts) this.#had(part);
  }

  /** From here on it is said again from its beginning. */
  again(): void {
    this.#isAgain = true;
    this.#expected = new Map(this.#got);
    this.#ahead = [...this.#before];
    this.#held = this.#unfit = null;
    for (const text of this.#texts.values()) text.heard = "";
  }

  /** What is new in a chunk. Throws if it belongs to another message: the chat went on elsewhere. */
  take(chunk: UIMessageChunk): UIMessageChunk[] {
    const [, kind, step] = /^(text|reasoning)-(start|delta|end)$/.exec(chunk.type) ?? [];
    if (kind !== undefined && step !== undefined) {
      const { id, delta = "" } = chunk as { id: string; delta?: string };
      return this.#text(kind as Kind, step, id, delta);
    }
    return [...this.#settled(), ...this.#other(chunk)];
  }

  #other(chunk: UIMessageChunk): UIMessageChunk[] {
    if (chunk.type === "start") this.#started(chunk);
    // One that has an id replaces the one before it.
    if (chunk.type.startsWith("data-") && "id" in chunk && chunk.id !== undefined) return [chunk];
    const key = keyOf(chunk);
    const expected = this.#expected.get(key) ?? 0;
    if (this.#isAgain && expected > 0) {
      this.#expected.set(key, expected - 1);
      return [];
    }
    this.#count(key);
    return [chunk];
  }

  #started({ messageId }: UIMessageChunk & { type: "start" }): void {
    if (this.#id !== undefined && messageId !== undefined && messageId !== this.#id) {
      throw new Error("the chat went on elsewhere: another message has begun");
    }
    this.#id = messageId ?? this.#id;
  }

  #text(kind: Kind, step: string, id: string, delta: string): UIMessageChunk[] {
    // A text that is said anew, because it is not how it began, has a mark at its id.
    const base = id.replace(/~+$/, "");
    const known = this.#texts.get(`${kind} ${base}`);
    if (known === undefined) return [...this.#settled(), ...this.#unknown(kind, step, base, delta)];
    const isAnew = step === "start" && id !== base;
    const out = isAnew && this.#unfit === known ? [] : this.#settled();
    if (isAnew) {
      this.#unfit = null;
      known.heard = "";
    }
    known.heard += delta;
    const isWhole = step === "end";
    if (known.heard.startsWith(known.said))
      return [...out, ...grown(known), ...(isWhole ? close(known) : [])];
    // Known pieces; or those of a server that forgot the beginning, of which its whole text will tell.
    if (isWhole) this.#unfit = known;
    return out;
  }

  /** A text that ended as another one than the reader has, unless the server goes on to say it anew. */
  #settled(): UIMessageChunk[] {
    const text = this.#unfit;
    this.#unfit = null;
    return text === null ? [] : [...grown(text), ...close(text)];
  }

  /** A text that was not said since the first connection: one of before, or a new one. */
  #unknown(kind: Kind, step: string, id: string, delta: string): UIMessageChunk[] {
    const [next] = this.#isAgain ? this.#ahead : [];
    if (next !== undefined && (step === "start" || this.#held?.id === id)) {
      const held = step === "start" ? { kind, id, heard: "" } : this.#held;
      if (held) {
        held.heard += delta;
        this.#held = held;
        const fits =
          next.kind === kind &&
          (step === "end" ? next.text === held.heard : next.text.startsWith(held.heard));
        if (fits && step === "end") {
          this.#ahead.shift();
          this.#held = null;
        }
        if (fits) return [];
      }
    }
    const heard = (this.#held?.id === id ? this.#held.heard : delta) as string;
    this.#held = null;
    const text: Text = { kind, id, said: "", isOpen: true, heard };
    this.#texts.set(`${kind} ${id}`, text);
    const start = { type: `${kind}-start`, id } as UIMessageChunk;
    return [start, ...grown(text), ...(step === "end" ? close(text) : [])];
  }

  #count(key: string): void {
    this.#got.set(key, (this.#got.get(key) ?? 0) + 1);
  }

  #had(part: Part): void {
    if (part.type === "text" || part.type === "reasoning")
      this.#before.push({ kind: part.type, text: part.text });
    else if (part.type === "step-start") for (const type of ["start-step", "finish-step"]) this.#count(type);
    else if ("toolCallId" in part) {
      const states = ["tool-input-available", `tool-${part.state}`];
      if ("approval" in part && part.approval) states.push("tool-approval-request");
      for (const type of new Set(states)) this.#count(`${type} ${part.toolCallId}`);
    } else if (part.type.startsWith("data-")) this.#count(keyOf(part as unknown as UIMessageChunk));
  }
}

/** What the reader lacks of a text, as far as it was heard. */
function grown(text: Text): UIMessageChunk[] {
  const { kind, said, heard } = text;
  if (heard === said) return [];
  const out: UIMessageChunk[] = [];
  const goesOn = heard.startsWith(said);
  if (!text.isOpen || !goesOn) {
    // There is no word for it: what the reader has ends, and another begins.
    out.push(...close(text));
    text.id += "~";
    text.isOpen = true;
    out.push({ type: `${kind}-start`, id: text.id } as UIMessageChunk);
  }
  const delta = goesOn ? heard.slice(said.length) : heard;
  if (delta !== "") out.push({ type: `${kind}-delta`, id: text.id, delta } as UIMessageChunk);
  text.said = heard;
  return out;
}

function close(text: Text): UIMessageChunk[] {
  if (!text.isOpen) return [];
  text.isOpen = false;
  return [{ type: `${text.kind}-end`, id: text.id } as UIMessageChunk];
}

/** What a chunk is known by: a step of a call once, everything else by what it says. */
function keyOf(chunk: UIMessageChunk): string {
  if ("toolCallId" in chunk) return `${chunk.type} ${chunk.toolCallId}`;
  if (chunk.type === "start" || chunk.type === "start-step" || chunk.type === "finish-step")
    return chunk.type;
  return chunk.type.startsWith("data-")
    ? `${chunk.type} ${JSON.stringify((chunk as { data: unknown }).data)}`
    : JSON.stringify(chunk);
}
