import { described } from "./described.js";
import { encoded } from "./payload.js";
import type { Outbox } from "./outbox.js";

/** The place of an event: its own span, and its parent span. */
export interface Placed {
  span_id?: string;
  parent_span_id?: string;
}

/** Random hexadecimal digits, two for each byte. */
function digits(bytes: number): string {
  const chance = crypto.getRandomValues(new Uint8Array(bytes));
  return [...chance].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A UUID version 7: the time, then random bits. */
export function newRunId(): string {
  const text = Date.now().toString(16).padStart(12, "0") + digits(9);
  return text.replace(/(.{8})(.{4})(.{3})(.{3})/, "$1-$2-7$3-a$4-");
}

/** A random id, unique within a run even if other programs emit into it. */
export const newId = (): string => digits(12);

/** Emits into a run, or into a step or a tool of it. Nothing here waits, and nothing throws. */
export class Scope {
  protected constructor(
    /** @internal */
    protected readonly outbox: Outbox,
    readonly run_id: string,
    /** The parent span of everything emitted here; null directly in the run. */
    readonly span_id: string | null,
  ) {}

  /** Emits an event of any type of the contract, with any value as its payload. */
  emit(type: string, payload: unknown = {}, placed: Placed = {}): void {
    const around = this.span_id === null ? {} : { parent_span_id: this.span_id };
    const isDelta = type.endsWith(".delta");
    const head = { type, ...around, ...placed, at: new Date().toISOString() };
    const named = encoded(isDelta ? head : { ...head, event_id: newId() });
    const json = `${named.slice(0, -1)},"payload":${encoded(payload)}}`;
    this.outbox.put({ json, isDelta, isVital: /^run\.(completed|failed|cancelled)$/.test(type) });
  }

  /** Emits `step.started`; `complete` or `fail` of the returned span ends it. */
  step(name: string, payload: object = {}): Span {
    return new Span(this, this.outbox, "step", name, payload);
  }

  /** Emits `tool.started` with its arguments; `complete(result)` or `fail(error)` ends it. */
  tool(name: string, args?: unknown, span_id?: string): Span {
    return new Span(this, this.outbox, "tool", name, { args }, span_id);
  }

  /** A message to be written piece by piece: `token` streams, `complete` stores the whole. */
  message(role = "assistant"): Message {
    return new Message(this, role);
  }

  /** Emits `log.info`, `log.warn` and so on. */
  log(level: "debug" | "info" | "warn" | "error", message: string, more: object = {}): void {
    this.emit(`log.${level}`, { message, ...more });
  }
}

/** A step or a tool call in progress. Events emitted through it are nested in it. */
export class Span extends Scope {
  readonly #around: Scope;
  readonly #family: string;
  readonly #name: string;
  readonly #began = performance.now();
  #hasEnded = false;

  /** @internal */
  constructor(
    around: Scope,
    outbox: Outbox,
    family: "step" | "tool",
    name: string,
    payload: object,
    span_id = newId(),
  ) {
    super(outbox, around.run_id, span_id);
    this.#around = around;
    this.#family = family;
    this.#name = name;
    around.emit(`${family}.started`, { name, ...payload }, { span_id });
  }

  /** Ends it with a tool's result, or with members for the end of a step. Only the first end counts. */
  complete(result?: unknown): void {
    this.#end("completed", this.#family === "tool" ? { result } : result);
  }

  /** Ends it with an error: an `Error` (with its stack and causes), a text, or any value. Only the first end counts. */
  fail(error: unknown): void {
    this.#end("failed", { error: described(error) });
  }

  #end(how: string, payload: unknown): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const members = typeof payload === "object" && payload !== null ? payload : {};
    const duration_ms = Math.round(performance.now() - this.#began);
    const span_id = this.span_id as string;
    this.#around.emit(`${this.#family}.${how}`, { name: this.#name, duration_ms, ...members }, { span_id });
  }
}

/** A message that is being written. */
export class Message {
  readonly span_id = newId();
  readonly #around: Scope;
  readonly #role: string;
  readonly #began = performance.now();
  #text = "";
  #hasEnded = false;

  /** @internal */
  constructor(around: Scope, role: string) {
    this.#around = around;
    this.#role = role;
  }

  /** Adds the next piece of the model's text; an empty one does nothing. */
  token(text: string | null | undefined): void {
    if (this.#hasEnded || !text) return;
    this.#text += text;
    // The server accepts 64 KiB in a delta.
    const pieces = text.match(/[^]{1,8000}/gu) ?? [];
    for (const piece of pieces)
      this.#around.emit("message.delta", { text: piece }, { span_id: this.span_id });
  }

  /** Emits `message.completed` with what was streamed, or with `text` instead; `more` may have `usage` and `model`. */
  complete(text = this.#text, more: object = {}): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const duration_ms = Math.round(performance.now() - this.#began);
    const payload = { role: this.#role, content: [{ type: "text", text }], duration_ms, ...more };
    this.#around.emit("message.completed", payload, { span_id: this.span_id });
  }
}

/** A run that this program records, made by `client.run` or `client.attach`. */
export class RunEmitter extends Scope {
  #hasEnded = false;

  /** @internal */
  constructor(outbox: Outbox, beat: () => void, lease_ms: number | null = null) {
    super(outbox, outbox.run_id, null);
    if (lease_ms === null) return;
    // The server treats 0 as a minute.
    const timer = setInterval(() => (this.ended ? clearInterval(timer) : beat()), (lease_ms || 60_000) / 3);
    (timer as { unref?: () => void }).unref?.();
  }

  /** How many durable events of this run were dropped: the queue was full, or the server refused them. */
  get dropped(): number {
    return this.outbox.dropped;
  }

  /** Whether the run accepts no more events: it was ended here, or (by another client) on the server. */
  get ended(): boolean {
    return this.#hasEnded || this.outbox.over !== null;
  }

  /** Whether everything emitted so far was stored or refused within `timeout_ms`. Never rejects. */
  flush(timeout_ms = 5_000): Promise<boolean> {
    return this.outbox.flush(timeout_ms);
  }

  /** Ends the run with `run.completed`, and flushes. */
  complete(output?: unknown): Promise<boolean> {
    return this.#end("run.completed", { output });
  }

  /** Ends the run with `run.failed` and the error (of an `Error` its type, message, stack and causes), and flushes. */
  fail(error: unknown): Promise<boolean> {
    return this.#end("run.failed", { error: described(error) });
  }

  /** Ends the run with `run.cancelled`, and flushes. `client.runs.cancel` reaches its descendants as well. */
  cancel(reason?: string): Promise<boolean> {
    return this.#end("run.cancelled", { reason });
  }

  #end(type: string, payload: object): Promise<boolean> {
    if (!this.#hasEnded) this.emit(type, payload);
    this.#hasEnded = true;
    return this.flush();
  }
}
