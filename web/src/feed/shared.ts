import { readToken } from "../api/token";
import type { Asked, Said } from "./hub";
import workerUrl from "./hubworker?sharedworker&url";
import { silent_ms, streamRequestOf, type StreamRequest } from "./streamrequest";

/** A stream of this tab, at the hub that all tabs of the browser share. */
interface Opened {
  wanted: StreamRequest;
  cursor: string | null;
  token: string | null;
  resolve: (response: Response) => void;
  reject: (reason: unknown) => void;
  /** Takes its text, once it was answered. */
  into: ReadableStreamDefaultController<Uint8Array> | null;
  pending_chars: number;
}

type Hear = (asked: Asked) => void;

/** Maximum number of bytes ahead of the reader; and after how many characters the hub learns that they were read. */
const ahead_bytes = 1_000_000;
const report_chars = 100_000;

/** Browsers allow six HTTP/1.1 connections to a server: all tabs share one for their streams. */
class Shared {
  readonly #opened = new Map<string, Opened>();
  readonly #waiting = new Set<() => void>();
  readonly #encoder = new TextEncoder();
  #hub: { token: string | null; hear: Promise<Hear> } | null = null;

  constructor() {
    addEventListener("pagehide", () => this.#leave());
  }

  /** Answers as the route of the stream would, with its text as it arrives. */
  open(path: string, cursor: string | null, signal: AbortSignal): Promise<Response> {
    const wanted = streamRequestOf(path);
    if (wanted === null) throw new Error(`no stream: ${path}`);
    const id = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
    const token = readToken();
    // Another person's streams end with their token.
    if (this.#hub !== null && this.#hub.token !== token) this.#leave();
    const answer = new Promise<Response>((resolve, reject) =>
      this.#opened.set(id, { wanted, cursor, token, resolve, reject, into: null, pending_chars: 0 }),
    );
    signal.addEventListener("abort", () => {
      if (!this.#opened.has(id)) return;
      this.#tell({ kind: "close", id });
      this.#fail(id, signal.reason);
    });
    this.#tell({ kind: "open", id, wanted, cursor, token });
    return answer;
  }

  /** Calls `again` when the server is reachable again, until the returned function is called. */
  onAgain(again: () => void): () => void {
    this.#waiting.add(again);
    return () => void this.#waiting.delete(again);
  }

  #tell(asked: Asked): void {
    const token = readToken();
    this.#hub ??= { token, hear: this.#join(token) };
    this.#hub.hear.then(
      (hear) => hear(asked),
      (reason: unknown) => this.#lost(reason),
    );
  }

  async #join(token: string | null): Promise<Hear> {
    if (typeof SharedWorker === "function") {
      try {
        return this.#worker();
      } catch {
        // Shared workers are not allowed here. The tabs elect one that has the hub.
      }
    }
    const { alone, join } = await import("./leader");
    const tell = (message: Said) => this.#hear(message);
    if (!("locks" in navigator) || typeof BroadcastChannel !== "function") return alone(tell);
    return join(token, tell, () => this.#moved());
  }

  #worker(): Hear {
    const type = import.meta.env.DEV ? "module" : "classic";
    const worker = new SharedWorker(trusted(workerUrl), { name: "runreel-stream", type });
    const { port } = worker;
    let silence: ReturnType<typeof setTimeout> | undefined;
    const heard = () => {
      clearTimeout(silence);
      silence = undefined;
    };
    port.onmessage = ({ data }: MessageEvent<Said>) => {
      heard();
      this.#hear(data);
    };
    const lost = () => {
      heard();
      this.#lost(new TypeError("no worker"));
    };
    // Its file could not be loaded, mostly because the server is unreachable.
    worker.onerror = lost;
    if ("locks" in navigator) {
      const lock = `runreel-tab-${crypto.randomUUID()}`;
      void navigator.locks.request(lock, () => {
        port.postMessage({ kind: "lives", lock });
        return new Promise<never>(() => undefined);
      });
    }
    return (asked) => {
      port.postMessage(asked);
      if (asked.kind === "bye") heard();
      if (asked.kind !== "open") return;
      // A dead worker sends nothing. One that is only idle is joined again.
      silence ??= setTimeout(() => {
        port.postMessage({ kind: "bye" });
        lost();
      }, silent_ms);
    };
  }

  #hear(message: Said): void {
    if (message.kind === "again") return this.#waiting.forEach((again) => again());
    const opened = this.#opened.get(message.id);
    if (opened === undefined) return;
    if (message.kind === "cut") return this.#fail(message.id, new TypeError("cut off"));
    if (message.kind === "text") {
      opened.pending_chars += message.text.length;
      return opened.into?.enqueue(this.#encoder.encode(message.text));
    }
    if (message.status === 200) return this.#answer(message.id, opened);
    if (message.status === 0) return this.#fail(message.id, new TypeError("no answer"));
    this.#opened.delete(message.id);
    const headers = { "content-type": "application/problem+json" };
    opened.resolve(new Response(message.text, { status: message.status, headers }));
  }

  #answer(id: string, opened: Opened): void {
    const body = new ReadableStream<Uint8Array>(
      {
        start: (into) => void (opened.into = into),
        pull: () => {
          if (opened.pending_chars < report_chars) return;
          this.#tell({ kind: "read", id, chars: opened.pending_chars });
          opened.pending_chars = 0;
        },
      },
      new ByteLengthQueuingStrategy({ highWaterMark: ahead_bytes }),
    );
    opened.resolve(new Response(body, { headers: { "content-type": "text/event-stream" } }));
  }

  #fail(id: string, reason: unknown): void {
    const opened = this.#opened.get(id);
    this.#opened.delete(id);
    if (opened?.into) opened.into.error(reason);
    else opened?.reject(reason);
  }

  #lost(reason: unknown): void {
    this.#hub = null;
    for (const id of [...this.#opened.keys()]) this.#fail(id, reason);
  }

  /** The hub has moved to another tab: answered streams are cut, the others are requested again. */
  #moved(): void {
    for (const [id, { wanted, cursor, token, into }] of [...this.#opened]) {
      if (into !== null) this.#fail(id, new TypeError("cut off"));
      else this.#tell({ kind: "open", id, wanted, cursor, token });
    }
  }

  #leave(): void {
    if (this.#hub === null) return;
    this.#tell({ kind: "bye" });
    this.#lost(new TypeError("the page is left"));
  }
}

interface Policies {
  createPolicy(
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ): {
    createScriptURL: (url: string) => string;
  };
}

/** The address of the worker's file. The pages' security policy allows it only from this Trusted Types policy. */
function trusted(url: string): string {
  const { trustedTypes } = globalThis as { trustedTypes?: Policies };
  policy ??= trustedTypes?.createPolicy("runreel-stream", {
    createScriptURL: (wanted) => {
      if (wanted !== workerUrl) throw new TypeError("another script");
      return wanted;
    },
  });
  return policy === undefined ? url : policy.createScriptURL(url);
}
let policy: ReturnType<Policies["createPolicy"]> | undefined;

export const shared = new Shared();
