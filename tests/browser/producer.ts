import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

/** A producer: what an agent's program does over HTTP. */
export interface NewEvent {
  type: string;
  payload?: unknown;
  span_id?: string;
  parent_span_id?: string;
  event_id?: string;
  at?: string;
}

export interface Acknowledged {
  first_seq: number;
  last_seq: number;
  events: { seq: number | null }[];
}

export class Producer {
  constructor(
    readonly url: () => string,
    /** A bearer token, for a server that asks for one. */
    readonly bearer?: string,
  ) {}

  async createRun(run: Record<string, unknown>): Promise<string> {
    const created = await this.#post<{ run_id: string }>("/api/runs", run);
    return created.run_id;
  }

  emit(run_id: string, ...events: NewEvent[]): Promise<Acknowledged> {
    return this.#post(`/api/runs/${run_id}/events`, events);
  }

  /** Answers an interrupt, as somebody without this browser. */
  resume(
    run_id: string,
    answer: { interrupt_id: string; decision: string; value?: unknown },
  ): Promise<unknown> {
    return this.#post(`/api/runs/${run_id}/resume`, answer);
  }

  async lastSeq(run_id: string): Promise<number> {
    const response = await fetch(`${this.url()}/api/runs/${run_id}`, { headers: this.#headers });
    return ((await response.json()) as { last_seq: number }).last_seq;
  }

  token(span_id: string, text: string): NewEvent {
    return { type: "message.delta", span_id, payload: { text } };
  }

  get #headers(): Record<string, string> {
    return this.bearer === undefined ? {} : { authorization: `Bearer ${this.bearer}` };
  }

  async #post<T>(path: string, body: unknown): Promise<T> {
    const response = await fetch(this.url() + path, {
      method: "POST",
      headers: { "content-type": "application/json", ...this.#headers },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }
}

/** What a program does that lives and has nothing to say; it says on its own output how often it has done it. */
const beating = `
  const [url, beat_ms] = process.argv.slice(1);
  for (let beats = 1; ; beats++) {
    await fetch(url, { method: "POST" });
    console.log(beats);
    await new Promise((rested) => setTimeout(rested, Number(beat_ms)));
  }`;

/** A process that renews the lease of a run until it is killed. */
export class Program {
  readonly #child;
  readonly #lines;

  constructor(url: string, run_id: string, beat_ms: number) {
    const words = ["--input-type=module", "-e", beating, `${url}/api/runs/${run_id}/heartbeat`, String(beat_ms)];
    this.#child = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
    this.#lines = createInterface(this.#child.stdout)[Symbol.asyncIterator]();
  }

  async beats(count: number): Promise<void> {
    for (let seen = 0; seen < count; seen++) await this.#lines.next();
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}
