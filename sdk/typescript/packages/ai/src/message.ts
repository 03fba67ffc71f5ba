import type { UIMessage, UIMessageChunk } from "ai";

/**
 * One message over several connections. Each one after the first replays it from the beginning. The reader's last step
 * is then taken back (`reset-step`) and sent again with what follows; earlier steps stay.
 *
 * A step that begins while a text is open is not shown as a new one: a log has a text where it ended, so only a step
 * that begins between texts is the same place for every reader.
 */
export class Message {
  #id: string | undefined;
  /** The number of steps that this connection began, and the number of the reader's last one. */
  #steps: number;
  #last: number;
  /** The ids of open texts. */
  readonly #open = new Set<string>();
  /** The ids of replacement texts; the message is requested again once for each. */
  readonly #anew = new Set<string>();
  /** Whether the replay is still at steps that the reader has. */
  #isBehind = false;
  /** The results of the page's own tools, which only the page has. */
  readonly #own = new Map<string, UIMessageChunk>();

  /** `goesOn` is the message that a post continues, as the reader has it. */
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

  /** The next connection replays the message from its beginning. */
  again(): void {
    this.#isBehind = true;
    this.#steps = 0;
    this.#open.clear();
  }

  /**
   * Whether a text begins that replaces an earlier one, which was streamed differently from what was stored. The
   * protocol cannot express that, so the server sends both; a replay of the message has only the stored one.
   */
  isReplacement(chunk: UIMessageChunk): boolean {
    if ((chunk.type !== "text-start" && chunk.type !== "reasoning-start") || !chunk.id.endsWith("~"))
      return false;
    const isFirst = !this.#anew.has(chunk.id);
    this.#anew.add(chunk.id);
    return isFirst;
  }

  /** The chunks that the reader gets for a chunk. Throws if it is of another message: the chat continued elsewhere. */
  take(chunk: UIMessageChunk): UIMessageChunk[] {
    const { type } = chunk;
    if (type === "start") this.#started(chunk);
    if (type === "start-step") this.#steps += 1;
    if (this.#isBehind) {
      if (this.#steps < this.#last) return [];
      this.#isBehind = false;
      const reset: UIMessageChunk = { type: "reset-step" };
      // The chunk begins the step that the reader is in.
      return this.#last > 0 ? [reset] : [reset, ...this.#passOn(chunk)];
    }
    return this.#passOn(chunk);
  }

  #passOn(chunk: UIMessageChunk): UIMessageChunk[] {
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
