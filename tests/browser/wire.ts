import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

/** The way between browser and server, which a test may cut. */
export class Wire {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Connections on which streams were asked for. */
  readonly #streams = new Set<Socket>();
  /** Bytes that the browser was sent. */
  received = 0;
  #isCut = false;

  private constructor(to: () => number) {
    this.#server = createServer((near) => {
      if (this.#isCut) return near.destroy();
      const far = connect(to(), "127.0.0.1");
      near.on("data", (chunk: Buffer) => {
        if (/^(POST \/api\/stream|GET \/api\/stream\/\S*) HTTP/.test(chunk.toString("latin1", 0, 200))) this.#streams.add(near);
      });
      far.on("data", (chunk: Buffer) => (this.received += chunk.length));
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(one);
        one.on("error", () => other.destroy());
        one.on("close", () => {
          this.#sockets.delete(one);
          this.#streams.delete(one);
          other.destroy();
        });
        one.pipe(other);
      }
    });
  }

  static async to(port: () => number): Promise<Wire> {
    const wire = new Wire(port);
    await new Promise<void>((listening) => wire.#server.listen(0, "127.0.0.1", listening));
    return wire;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** How many connections carry streams now. */
  get streams(): number {
    return this.#streams.size;
  }

  /** Resets every connection and refuses new ones. */
  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  heal(): void {
    this.#isCut = false;
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((closed) => this.#server.close(closed));
  }
}
