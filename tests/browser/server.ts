import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import * as http from "node:http";
import * as https from "node:https";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { Client } from "pg";

/** The program that is tested. */
export const binary = resolve(import.meta.dirname, process.env["RUNREEL_BIN"] ?? "../../target/debug/runreel");
/** The first start makes the embedded database; a slow machine needs its time. */
const ready_ms = 45_000;
/** More than the server needs at most to end its database. */
const stop_ms = 40_000;
/** For both together, beside the time of the test itself. */
export const startAndStop_ms = ready_ms + stop_ms;

/** None outlives the worker, also when it is ended in the middle of a start or a stop. */
const alive = new Set<ChildProcess>();
process.once("exit", () => {
  for (const child of alive) child.kill("SIGTERM");
});

/** How a server differs from `runreel serve`. */
interface Options {
  flags?: string[];
  env?: Record<string, string>;
}

/** Whether it says that it is ready; its certificate is a test's own. */
function isReady(url: string): Promise<boolean> {
  const { get } = url.startsWith("https:") ? https : http;
  return new Promise((answered) => {
    const asked = get(`${url}/readyz`, { rejectUnauthorized: false, timeout: 5_000 }, (response) => {
      response.resume();
      answered(response.statusCode === 200);
    });
    asked.on("timeout", () => asked.destroy());
    asked.on("error", () => answered(false));
  });
}

/** The real server on a data directory of its own. */
export class Server {
  #child: ChildProcess | null = null;
  #output = "";
  #scheme = "http";
  port = 0;

  private constructor(
    readonly folder: string,
    readonly options: Options,
  ) {}

  /** Making a database takes seconds: tests begin `from` a copy of one that a stopped server left. */
  static async start(from?: Server, options: Options = {}): Promise<Server> {
    const server = new Server(await mkdtemp(join(tmpdir(), "runreel-browser-")), options);
    try {
      // Under root the database has a user of its own. Closed to it, its socket would lie elsewhere and stay there.
      await chmod(server.folder, 0o711);
      // `-a` because the database's files belong to its own user.
      if (from) await promisify(execFile)("cp", ["-a", from.#dataDir, server.#dataDir]);
      await server.up();
    } catch (error) {
      // Why it did not start says more than how it ended.
      await server.remove().catch(() => undefined);
      throw error;
    }
    return server;
  }

  get #dataDir(): string {
    return join(this.folder, "data");
  }

  get url(): string {
    return `${this.#scheme}://127.0.0.1:${this.port}`;
  }

  /** Starts the process, the second time on the port of the first; it adopts the database that a kill left. */
  async up(): Promise<void> {
    const listen = `127.0.0.1:${this.port}`;
    const { flags = [], env = {} } = this.options;
    const child = spawn(binary, ["serve", "--listen", listen, "--data-dir", this.#dataDir, ...flags], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    this.#child = child;
    this.#output = "";
    const read = (chunk: Buffer) => (this.#output += chunk.toString());
    child.stdout?.on("data", read);
    child.stderr?.on("data", read);
    alive.add(child);
    child.once("exit", () => alive.delete(child));
    await once(child, "spawn");
    await this.#ready(child);
  }

  /** Changes the tables, as somebody who owns them can. */
  async execute(...statements: string[]): Promise<void> {
    const text = (name: string) => readFile(join(this.#dataDir, name), "utf8");
    const [port, host] = (await text("postgres/postmaster.pid")).split("\n").slice(3);
    const password = (await text("postgres.pass")).trim().split(":").at(-1);
    const user = { user: "runreel", database: "runreel", password };
    const client = new Client({ host, port: Number(port), ...user });
    await client.connect();
    try {
      for (const statement of statements) await client.query(statement);
    } finally {
      await client.end();
    }
  }

  /** The hard way: nothing is flushed, nobody is told. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** Ends the server and, through it, the database; the data stays. */
  async stop(): Promise<void> {
    // Only a server ends the database of one that was killed.
    if (!this.#isAlive) await this.up();
    const code = await this.#end("SIGTERM");
    const isDatabaseLeft = existsSync(join(this.#dataDir, "postgres/postmaster.pid"));
    if (code === 0 && !isDatabaseLeft) return;
    const left = isDatabaseLeft ? " and left its database" : "";
    throw new Error(`the server ended with ${code}${left}:\n${this.#output}`);
  }

  async remove(): Promise<void> {
    await this.#end("SIGTERM");
    await rm(this.folder, { recursive: true, force: true });
  }

  get #isAlive(): boolean {
    const child = this.#child;
    return child?.pid !== undefined && child.exitCode === null && child.signalCode === null;
  }

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#child;
    if (child === null || !this.#isAlive) return child?.exitCode ?? null;
    const exited = once(child, "exit");
    child.kill(signal);
    const late = setTimeout(() => child.kill("SIGKILL"), stop_ms);
    await exited;
    clearTimeout(late);
    return child.exitCode;
  }

  async #ready(child: ChildProcess): Promise<void> {
    const deadline = Date.now() + ready_ms;
    while (Date.now() < deadline && this.#isAlive) {
      const printed = /(https?):\/\/127\.0\.0\.1:(\d+)/.exec(this.#output);
      if (printed !== null) {
        this.#scheme = printed[1] ?? "http";
        this.port = Number(printed[2]);
        if (await isReady(this.url)) return;
      }
      // Not a wait for luck: this asks again until the condition holds or its time is over.
      await new Promise((again) => setTimeout(again, 50));
    }
    throw new Error(`the server did not become ready (exit ${child.exitCode}):\n${this.#output}`);
  }
}
