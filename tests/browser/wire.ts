import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

/** The way between browser and server, which a test may cut. */
export class Wire {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isCut = false;

  private constructor(to: () => number) {
    this.#server = createServer((near) => {
      if (this.#isCut) return near.destroy();
      const far = connect(to(), "127.0.0.1");
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(one);
        one.on("error", () => other.destroy());
        one.on("close", () => {
          this.#sockets.delete(one);
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
