/** Pages of other origins, and a server that lists one of them. */

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test as base } from "@playwright/test";
import { Server, startAndStop_ms } from "./server.ts";
import { secret, signed } from "./signed.ts";

/** The script at a path; the page, which is empty, is at any other. */
type Scripts = (path: string) => string | Buffer | undefined;

interface Fixtures {
  scripts: Scripts;
  /** Whether the server asks who somebody is. */
  isOpen: boolean;
  /** The origin that the server lists. */
  listed: string;
  /** One that it does not. */
  other: string;
  server: Server;
}

async function site(scripts: Scripts, use: (origin: string) => Promise<void>): Promise<void> {
  const site = createServer(({ url = "/" }, response) => {
    const script = scripts(url);
    response.setHeader("content-type", script === undefined ? "text/html" : "text/javascript");
    response.end(script ?? "<!doctype html><title>A page of somebody's own</title><div id=root></div>");
  });
  await new Promise<void>((listening) => site.listen(0, "127.0.0.1", listening));
  await use(`http://127.0.0.1:${(site.address() as AddressInfo).port}`);
  site.close();
}

export const test = base.extend<Fixtures>({
  isOpen: [false, { option: true }],
  scripts: async ({}, use) => use(() => undefined),
  listed: ({ scripts }, use) => site(scripts, use),
  other: ({ scripts }, use) => site(scripts, use),
  server: [
    async ({ isOpen, listed }, use) => {
      const flags = ["--cors-origin", listed, ...(isOpen ? [] : ["--auth", "jwt"])];
      const server = await Server.start(undefined, { flags, env: isOpen ? {} : { RUNREEL_JWT_SECRET: secret } });
      try {
        await use(server);
      } finally {
        await server.remove();
      }
    },
    { timeout: startAndStop_ms },
  ],
});

/** What Alice posts. */
export async function post<T>(server: Server, path: string, body: unknown): Promise<T> {
  const response = await fetch(server.url + path, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${signed("alice")}` },
    body: JSON.stringify(body),
  });
  expect(response.ok, await response.clone().text()).toBe(true);
  return (await response.json()) as T;
}

export { expect };
