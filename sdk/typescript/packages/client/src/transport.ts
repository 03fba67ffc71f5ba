import { problemOf, RunreelError, unreachable } from "./errors.js";

/** The parameters of a query; absent, null and empty values are left out. */
export type Query = Record<string, string | number | boolean | null | undefined>;

/**
 * A credential for `Authorization: Bearer`: an API token, a read token or a JWT. A function is called before the first
 * request, and again when the server answered 401 to its token, which it then gets as `refused`; null is no credential.
 */
export type TokenSource =
  | string
  | null
  | undefined
  | ((refused: string | null) => string | null | undefined | Promise<string | null | undefined>);

/** The server's address, and the credential. */
export interface TransportOptions {
  /** The server's address without a path; "" is the page's own origin. */
  url: string;
  token?: TokenSource;
  /** Another `fetch`: for a proxy's agent, or for tests. */
  fetch?: typeof fetch | undefined;
}

/** One request. */
export interface CallOptions {
  /** `GET` by default. */
  method?: string;
  query?: Query;
  /** Sent as JSON. */
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

/** The path with these in its query; unchanged when none is left. */
export function withQuery(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if ((value ?? "") !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** One segment of a path, percent-encoded. URL libraries resolve "." and "..", which are valid thread ids. */
export function segment(text: string): string {
  return /^\.+$/.test(text) ? text.replaceAll(".", "%2E") : encodeURIComponent(text);
}

/** Requests to one server with one credential, which is renewed when it is refused. */
export class Transport {
  readonly #options: TransportOptions;
  #token: string | null | undefined;
  #asking: Promise<string | null> | null = null;

  constructor(options: TransportOptions) {
    this.#options = options;
  }

  /** The response, whatever its status. Throws what `fetch` throws, and what the source of tokens throws. */
  async open(path: string, init: RequestInit & { headers?: Record<string, string> } = {}): Promise<Response> {
    const { url, token } = this.#options;
    const send = (bearer: string | null) => {
      const headers = bearer === null ? init.headers : { ...init.headers, authorization: `Bearer ${bearer}` };
      return (this.#options.fetch ?? fetch)(url + path, { ...init, ...(headers && { headers }) });
    };
    if (typeof token !== "function") return send(token ?? null);
    const bearer = this.#token === undefined ? await this.#ask(token, null) : this.#token;
    const response = await send(bearer);
    if (response.status !== 401) return response;
    // Another request may have renewed it in the meantime.
    const renewed = this.#token !== bearer ? (this.#token ?? null) : await this.#ask(token, bearer);
    if (renewed === bearer) return response;
    // Frees its connection for the next request.
    await response.body?.cancel();
    return send(renewed);
  }

  /** A successful response; every other answer throws a `RunreelError`, an abort the signal's reason. */
  async call(path: string, options: CallOptions = {}): Promise<Response> {
    const { method = "GET", query, body, signal } = options;
    const headers = {
      accept: "application/json",
      ...(body !== undefined && { "content-type": "application/json" }),
      ...options.headers,
    };
    let response: Response;
    try {
      const text = body === undefined ? null : JSON.stringify(body);
      response = await this.open(withQuery(path, query), {
        method,
        headers,
        body: text,
        signal: signal ?? null,
      });
    } catch (cause) {
      signal?.throwIfAborted();
      throw cause instanceof TypeError ? unreachable(cause) : cause;
    }
    if (!response.ok) throw new RunreelError(await problemOf(response));
    return response;
  }

  /** The decoded JSON of a successful response; throws like {@link call}. */
  async json<T>(path: string, options?: CallOptions): Promise<T> {
    return (await (await this.call(path, options)).json()) as T;
  }

  /** Asks for a token once, however many requests wait for it. */
  #ask(
    source: Exclude<TokenSource, string | null | undefined>,
    refused: string | null,
  ): Promise<string | null> {
    this.#asking ??= (async () => {
      try {
        return (this.#token = (await source(refused)) ?? null);
      } finally {
        this.#asking = null;
      }
    })();
    return this.#asking;
  }
}
