import type { TestProject } from "vitest/node";
import { Server } from "../../../tests/browser/server.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The address of the real server that all test files share; it asks nobody who they are. */
    url: string;
  }
}

/** One server for all tests: `RUNREEL_BIN` names the program, `target/debug/runreel` where it does not. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await Server.start();
  project.provide("url", server.url);
  return async () => {
    await server.stop();
    await server.remove();
  };
}
