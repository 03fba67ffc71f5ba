import { createHmac, randomBytes, randomUUID } from "node:crypto";
import { Server } from "../../../tests/browser/server.ts";

/** A real server that asks everybody who they are, and the credentials of any number of principals. */
export class Tenants {
  readonly #server: Server;
  readonly #secret: string;

  private constructor(server: Server, secret: string) {
    this.#server = server;
    this.#secret = secret;
  }

  static async start(): Promise<Tenants> {
    const secret = randomBytes(32).toString("hex");
    const env = { RUNREEL_JWT_SECRET: secret };
    return new Tenants(await Server.start(undefined, { flags: ["--auth", "jwt"], env }), secret);
  }

  get url(): string {
    return this.#server.url;
  }

  /** A JWT of this principal, of a new one if none is named; for `expires_s` seconds. */
  token(subject: string = randomUUID(), expires_s = 3_600): string {
    const claims = { sub: subject, exp: Math.floor(Date.now() / 1000) + expires_s };
    const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
    return `${signed}.${createHmac("sha256", this.#secret).update(signed).digest("base64url")}`;
  }

  async stop(): Promise<void> {
    await this.#server.stop();
    await this.#server.remove();
  }
}
