import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const binary = resolve(import.meta.dirname, process.env["RUNREEL_BIN"] ?? "../../target/debug/runreel");
/** The first start makes the embedded database; a slow machine needs its time. */
const ready_ms = 45_000;

/** The real server on a data directory of its own. */
export class Server {
  #child: ChildProcess | null = null;
  #output = "";
  port = 0;

  private constructor(readonly dataDir: string) {}

  static async start(): Promise<Server> {
    const server = new Server(await mkdtemp(join(tmpdir(), "runreel-browser-")));
    await server.up();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts the process, the second time on the port of the first. */
  async up(): Promise<void> {
    const listen = `127.0.0.1:${this.port}`;
    const child = spawn(binary, ["serve", "--listen", listen, "--data-dir", this.dataDir], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child = child;
    this.#output = "";
    this.port = await this.#printedPort(child);
    await this.#ready(child);
  }

  /** The hard way: nothing is flushed, nobody is told. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  async stop(): Promise<void> {
    await this.#end("SIGTERM");
    await this.#endOrphan();
    await rm(this.dataDir, { recursive: true, force: true });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (child === null || child.exitCode !== null) return;
    const exited = once(child, "exit");
    child.kill(signal);
    await exited;
  }

  /** The database of a server that was killed and never came up again would outlive the tests. */
  async #endOrphan(): Promise<void> {
    const pidFile = await readFile(join(this.dataDir, "postgres/postmaster.pid"), "utf8").catch(() => "");
    const pid = Number(pidFile.split("\n")[0]);
    if (pid > 0) process.kill(pid, "SIGQUIT");
  }

  #printedPort(child: ChildProcess): Promise<number> {
    return new Promise((found, failed) => {
      const read = (chunk: Buffer) => {
        this.#output += chunk.toString();
        const port = /http:\/\/127\.0\.0\.1:(\d+)/.exec(this.#output)?.[1];
        if (port !== undefined) found(Number(port));
      };
      child.stdout?.on("data", read);
      child.stderr?.on("data", read);
      child.once("error", failed);
      child.once("exit", (code) => failed(new Error(`the server ended with ${code}:\n${this.#output}`)));
    });
  }

  async #ready(child: ChildProcess): Promise<void> {
    const deadline = Date.now() + ready_ms;
    while (Date.now() < deadline) {
      if (child.exitCode !== null) break;
      const response = await fetch(`${this.url}/readyz`).catch(() => null);
      if (response?.status === 200) return;
      // Not a wait for luck: this asks again until the condition holds or its time is over.
      await new Promise((again) => setTimeout(again, 50));
    }
    throw new Error(`the server did not become ready:\n${this.#output}`);
  }
}
