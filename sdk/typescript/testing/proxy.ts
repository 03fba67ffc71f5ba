import * as http from "node:http";
import type { AddressInfo } from "node:net";

/** What reached the proxy: a request, and the frames of the stream that went back, as the server wrote them. */
export interface Passed {
  method: string;
  path: string;
  /** Its `Last-Event-ID`. */
  cursor: string | null;
  body: string;
  text: string;
}

/** How one answer is passed on; it is asked for each chunk. `end` ends the body as if the server had: cleanly. */
export interface Way {
  chunk?: (data: Buffer, to: http.ServerResponse, passed: Passed) => void;
  /** The body is held back and let out so many bytes at a time. */
  bytesAtOnce?: number;
  /** The server's answer never gets out of here, and the connection breaks. */
  isLost?: boolean;
  /** It does not pass on that the server has closed. */
  staysOpen?: boolean;
  /** Instead of asking the server. */
  answer?: (to: http.ServerResponse) => void;
}

/** A proxy that knows HTTP, as there is one in front of most servers; `way` decides for each request what it does. */
export class Proxy {
  readonly passed: Passed[] = [];
  readonly #server: http.Server;

  private constructor(to: string, way: (passed: Passed, count: number) => Way) {
    this.#server = http.createServer((request, response) => {
      const { method = "GET", url: path = "/", headers } = request;
      const cursor = (headers["last-event-id"] as string | undefined) ?? null;
      const passed: Passed = { method, path, cursor, body: "", text: "" };
      this.passed.push(passed);
      const how = way(passed, this.passed.length);
      if (how.answer) return how.answer(response);
      const { host: _, ...forwarded } = headers;
      const asked = http.request(to + path, { method, headers: forwarded }, (answer) => {
        if (how.isLost) return void response.destroy();
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        response.flushHeaders();
        answer.on("data", (data: Buffer) => {
          // It has ended the body already, and what still comes from the server went nowhere.
          if (response.writableEnded) return;
          passed.text += data.toString();
          if (how.bytesAtOnce) return letOut(answer, response, data, how.bytesAtOnce);
          if (how.chunk) how.chunk(data, response, passed);
          else response.write(data);
        });
        answer.on("end", () => how.staysOpen || response.end());
        answer.on("error", () => response.destroy());
      });
      asked.on("error", () => response.destroy());
      response.on("close", () => asked.destroy());
      request.on("data", (data: Buffer) => (passed.body += data.toString()));
      request.pipe(asked);
    });
  }

  static async to(url: string, way: (passed: Passed, count: number) => Way = () => ({})): Promise<Proxy> {
    const proxy = new Proxy(url, way);
    await new Promise<void>((listening) => proxy.#server.listen(0, "127.0.0.1", listening));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((closed) => this.#server.close(closed));
  }
}

/** Lets the data out piece by piece, and takes no more from the server meanwhile. */
function letOut(from: http.IncomingMessage, to: http.ServerResponse, data: Buffer, bytes: number): void {
  from.pause();
  let rest = data;
  const timer = setInterval(() => {
    to.write(rest.subarray(0, bytes));
    rest = rest.subarray(bytes);
    if (rest.length > 0) return;
    clearInterval(timer);
    from.resume();
  }, 0);
}
