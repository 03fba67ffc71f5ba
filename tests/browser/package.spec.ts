/** `@runreel/client` in a page of another origin and in a worker of it, over a way that is cut. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "@playwright/test";
import { expect, post, test as base } from "./listed.ts";
import { Wire } from "./wire.ts";

/** As npm gets it; `./just browser` builds it. */
const dist = join(import.meta.dirname, "../../sdk/typescript/packages/client/dist");

interface Wanted {
  url: string;
  token: string;
  run_id: string;
}

interface Said {
  seqs: number[];
  state: string;
}

const scripts: Record<string, string> = {
  "/follow.js": `
    import { Client } from "/index.js";
    export async function follow({ url, token, run_id }, say) {
      const seqs = [];
      const stream = new Client({ url, token }).stream(run_id);
      stream.status.subscribe(() => say({ seqs, state: stream.status.getSnapshot().state }));
      for await (const event of stream) if (typeof event.seq === "number") seqs.push(event.seq);
    }`,
  "/worker.js": `
    import { follow } from "/follow.js";
    onmessage = ({ data }) => follow(data, postMessage);`,
};

const test = base.extend<{ wire: Wire; wanted: Wanted }>({
  scripts: async ({}, use) =>
    use((path) => scripts[path] ?? (path.endsWith(".js") ? readFileSync(join(dist, path)) : undefined)),
  wire: async ({ server }, use) => {
    const wire = await Wire.to(() => server.port);
    await use(wire);
    await wire.close();
  },
  wanted: async ({ server, wire }, use) => {
    const { run_id } = await post<{ run_id: string }>(server, "/api/runs", { title: "Followed" });
    const { token } = await post<{ token: string }>(server, `/api/runs/${run_id}/tokens`, {});
    await use({ url: wire.url, token, run_id });
  },
});

const said = (page: Page) => page.evaluate(() => (globalThis as unknown as { said: Said }).said);

async function inPage(page: Page, wanted: Wanted): Promise<void> {
  await page.evaluate(async (wanted) => {
    const script = "/follow.js";
    const { follow } = (await import(script)) as { follow: (wanted: Wanted, say: (said: Said) => void) => void };
    follow(wanted, (said) => Object.assign(globalThis, { said }));
  }, wanted);
}

async function inWorker(page: Page, wanted: Wanted): Promise<void> {
  await page.evaluate((wanted) => {
    const worker = new Worker("/worker.js", { type: "module" });
    worker.onmessage = ({ data }) => Object.assign(globalThis, { said: data as Said });
    worker.postMessage(wanted);
  }, wanted);
}

for (const [where, start] of [
  ["a page", inPage],
  ["a worker", inWorker],
] as const) {
  test(`the package follows a run in ${where} of another origin, through cuts, to its end`, async ({
    page,
    listed,
    server,
    wire,
    wanted,
  }) => {
    await page.goto(listed);
    await start(page, wanted);
    await expect.poll(() => said(page)).toEqual({ seqs: [1, 2], state: "live" });
    for (let cut = 1; cut <= 3; cut += 1) {
      wire.cut();
      await expect.poll(async () => (await said(page)).state).toBe("reconnecting");
      await post(server, `/api/runs/${wanted.run_id}/events`, { type: "custom.word" });
      wire.heal();
      await expect.poll(async () => (await said(page)).state).toBe("live");
    }
    await post(server, `/api/runs/${wanted.run_id}/events`, { type: "run.completed" });
    await expect.poll(() => said(page)).toEqual({ seqs: [1, 2, 3, 4, 5, 6], state: "ended" });
  });
}
