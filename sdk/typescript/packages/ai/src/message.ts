import type { UIMessage, UIMessageChunk } from "ai";

/**
 * One message over several connections. Each but the first says it from its beginning again. What the reader has of the
 * last step is taken back then (`reset-step`), and said anew with what follows; what is before it stays.
 *
 * A step in which a text was being written when the next one began goes on for its reader: a log has a text where it
 * ended, so only a step that began between texts is the same place for every reader.
 */
export class Message {
  #id: string | undefined;
  /** The steps that this connection began, and which of them is the reader's last. */
  #steps: number;
  #last: number;
  /** Texts that are being written. */
  readonly #open = new Set<string>();
  /** Texts that were said anew, each of which is asked for once. */
  readonly #anew = new Set<string>();
  /** Whether the reader has what is being said. */
  #isBehind = false;
  /** The results of the page's own tools, which nobody else knows. */
  readonly #own = new Map<string, UIMessageChunk>();

  /** `goesOn` is what the reader has of a message that a post continues. */
  constructor(goesOn?: UIMessage) {
    this.#id = goesOn?.id;
    const parts = goesOn?.parts ?? [];
    this.#steps = this.#last = parts.filter(({ type }) => type === "step-start").length;
    for (const part of parts) {
      if (!("toolCallId" in part) || part.providerExecuted) continue;
      const { toolCallId, state } = part;
      if (state === "output-available") {
        this.#own.set(toolCallId, { type: "tool-output-available", toolCallId, output: part.output });
      } else if (state === "output-error") {
        this.#own.set(toolCallId, { type: "tool-output-error", toolCallId, errorText: part.errorText });
      }
    }
  }

  /** From here on it is said again from its beginning. */
  again(): void {
    this.#isBehind = true;
    this.#steps = 0;
    this.#open.clear();
  }

  /**
   * Whether a text begins that replaces one, because what was said of that is not how it turned out. The server has no word
   * for it and says both; said from its beginning again, the message has only the right one.
   */
  isReplacement(chunk: UIMessageChunk): boolean {
    if ((chunk.type !== "text-start" && chunk.type !== "reasoning-start") || !chunk.id.endsWith("~"))
      return false;
    const isFirst = !this.#anew.has(chunk.id);
    this.#anew.add(chunk.id);
    return isFirst;
  }

  /** What the reader gets for a chunk. Throws if it belongs to another message: the chat went on elsewhere. */
  take(chunk: UIMessageChunk): UIMessageChunk[] {
    const { type } = chunk;
    if (type === "start") this.#started(chunk);
    if (type === "start-step") this.#steps += 1;
    if (this.#isBehind) {
      if (this.#steps < this.#last) return [];
      this.#isBehind = false;
      const reset: UIMessageChunk = { type: "reset-step" };
      // The step that it begins is the one that the reader is in.
      return this.#last > 0 ? [reset] : [reset, ...this.#said(chunk)];
    }
    return this.#said(chunk);
  }

  #said(chunk: UIMessageChunk): UIMessageChunk[] {
    const { type } = chunk;
    if (type === "text-start" || type === "reasoning-start") this.#open.add(chunk.id);
    else if (type === "text-end" || type === "reasoning-end") this.#open.delete(chunk.id);
    else if (type === "start-step") {
      if (this.#open.size > 0) return [];
      this.#last = this.#steps;
    }
    const own = type === "tool-input-available" ? this.#own.get(chunk.toolCallId) : undefined;
    return own === undefined ? [chunk] : [chunk, own];
  }

  #started({ messageId }: UIMessageChunk & { type: "start" }): void {
    if (this.#id !== undefined && messageId !== undefined && messageId !== this.#id) {
      throw new Error("the chat went on elsewhere: another message has begun");
    }
    this.#id = messageId ?? this.#id;
  }
}
