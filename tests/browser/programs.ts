import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { resolve } from "node:path";

const root = resolve(import.meta.dirname, "../..");
/** The interpreter that has what the Python tests need; `./just python` makes it. */
export const python = resolve(root, ".tools/python/bin/python");

/** A port that was free a moment ago, for programs that have to be told one before they start. */
export async function freePort(): Promise<number> {
  const holder = createServer().listen(0, "127.0.0.1");
  await once(holder, "listening");
  const { port } = holder.address() as AddressInfo;
  holder.close();
  await once(holder, "close");
  return port;
}

/** A program of an example, which serves a page. */
export class Program {
  #output = "";

  private constructor(
    readonly url: string,
    readonly child: ChildProcess,
  ) {}

  /** Starts it in its folder below `examples/` and waits until it answers at `url`. */
  static async start(words: [string, ...string[]], folder: string, url: string, env: Record<string, string>) {
    const [command, ...rest] = words;
    const cwd = resolve(root, "examples", folder);
    const paths = { PYTHONPATH: resolve(root, "sdk/python/src") };
    const child = spawn(command, rest, {
      cwd,
      env: { ...process.env, ...paths, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const program = new Program(url, child);
    const read = (chunk: Buffer) => (program.#output += chunk.toString());
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    const deadline = Date.now() + 45_000;
    while (Date.now() < deadline && child.exitCode === null) {
      const response = await fetch(url).catch(() => null);
      await response?.arrayBuffer();
      if (response !== null) return program;
      // Not a wait for luck: this asks again until the condition holds or its time is over.
      await new Promise((again) => setTimeout(again, 100));
    }
    await program.stop();
    throw new Error(`${words.join(" ")} does not answer at ${url}:\n${program.#output}`);
  }

  async stop(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exited = once(this.child, "exit");
    this.child.kill("SIGKILL");
    await exited;
  }
}
