import { RunreelError, type CallOptions, type Transport } from "@runreel/client";

export interface Patience {
  timeout_ms: number;
  retries: number;
}

/** Transient statuses: the server restarts, is busy, or does not know whether the database stored it. */
const passing = new Set([0, 408, 425, 429, 502, 503, 504]);

/** The longest waits before the first retry and before any. The wait is random below that, to spread the load. */
const firstWait_ms = 250;
const wait_ms_max = 5_000;

/** Requests that are retried: each is idempotent. */
export class Requests {
  readonly #transport: Transport;
  readonly #patience: Patience;

  constructor(transport: Transport, patience: Patience) {
    this.#transport = transport;
    this.#patience = patience;
  }

  /** The answer. Throws a `RunreelError` when it is a refusal, or when there was none after the last retry. */
  async send<T>(path: string, call: CallOptions = {}): Promise<T | undefined> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#once<T>(path, call);
      } catch (error) {
        const isPassing = error instanceof RunreelError && passing.has(error.status);
        if (!isPassing || attempt >= this.#patience.retries) throw error;
        const wait_ms = Math.random() * Math.min(firstWait_ms * 2 ** attempt, wait_ms_max);
        await new Promise((again) => setTimeout(again, wait_ms));
      }
    }
  }

  /** Like `send`, but undefined for what does not exist, or is another principal's. */
  async find<T>(path: string, call: CallOptions = {}): Promise<T | undefined> {
    try {
      return await this.send<T>(path, call);
    } catch (error) {
      if (error instanceof RunreelError && error.code === "not_found") return undefined;
      throw error;
    }
  }

  async #once<T>(path: string, call: CallOptions): Promise<T | undefined> {
    const signal = AbortSignal.timeout(this.#patience.timeout_ms);
    try {
      const response = await this.#transport.call(path, { ...call, signal });
      return response.status === 204 ? undefined : ((await response.json()) as T);
    } catch (error) {
      // A timeout, or an answer that broke off.
      if (!signal.aborted && (error instanceof RunreelError || !(error instanceof TypeError))) throw error;
      const title = signal.aborted
        ? `No answer within ${this.#patience.timeout_ms} ms`
        : "The answer broke off";
      throw new RunreelError({ title, status: 0, code: "unreachable" }, { cause: error });
    }
  }
}
