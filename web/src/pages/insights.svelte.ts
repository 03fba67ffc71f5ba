import { RunreelError, type Problem } from "@runreel/client";
import { ask, guide, type QueryResult } from "../api/sql";
import { agentsQuery, byId, figures, narrowed, type Range } from "./insights";

/** The state of one query. */
export interface Answer {
  query: string;
  result: QueryResult | null;
  problem: Problem | null;
}

/** Maximum number of concurrent queries: the server limits the reads of a principal. */
const at_once = 2;
const rows_max = 1_000;
const urgent = (id: string) => Number(/_(runs|waiting|stalled)$/.test(id));

/** The figures of a period, from the server's own queries, which are repeated. */
export class Insights {
  answers = $state.raw<ReadonlyMap<string, Answer>>(new Map());
  agents = $state.raw<readonly string[]>([]);
  /** Why no figures could be read. */
  problem = $state.raw<Problem | null>(null);
  read_ms = $state<number | null>(null);
  #queries: ReadonlyMap<string, string> | null = null;
  #abort = new AbortController();

  /** Runs all queries, and shows each answer as it arrives. */
  async read(range: Range, agent: string): Promise<void> {
    this.#abort.abort();
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    try {
      await this.#start(signal);
    } catch (error) {
      if (error instanceof RunreelError && !signal.aborted) this.problem = error.problem;
      return;
    }
    const waiting = [...(this.#queries ?? [])];
    const work = async () => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        const [id, query] = next;
        await this.#ask(id, narrowed(query, range, agent), signal);
      }
    };
    await Promise.all(Array.from({ length: at_once }, work));
    if (!signal.aborted) this.read_ms = Date.now();
  }

  stop(): void {
    this.#abort.abort();
  }

  async #start(signal: AbortSignal): Promise<void> {
    if (this.#queries !== null) return;
    const [{ examples }, agents] = await Promise.all([guide(signal), ask(agentsQuery, rows_max, signal)]);
    const queries = [...byId(examples)].map(([id, { query }]): [string, string] => [id, query]);
    this.agents = agents.rows.map(([agent]) => String(agent));
    // The most urgent queries come first.
    queries.sort(([a], [b]) => urgent(b) - urgent(a));
    this.#queries = new Map([["figures", figures], ...queries]);
    this.problem = null;
  }

  async #ask(id: string, query: string, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const before = this.answers.get(id);
    try {
      this.#take(id, { query, result: await ask(query, rows_max, signal), problem: null });
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof RunreelError)) throw error;
      // A transient failure keeps the previous figures.
      const isPassing = error.status === 0 || error.status === 429 || error.status === 503;
      const kept = isPassing && before?.query === query ? before.result : null;
      this.#take(id, { query, result: kept, problem: kept === null ? error.problem : null });
    }
  }

  #take(id: string, answer: Answer): void {
    this.answers = new Map(this.answers).set(id, answer);
  }
}
