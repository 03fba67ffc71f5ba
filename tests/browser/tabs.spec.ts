import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, request, test as base } from "@playwright/test";
import { expectPrompt, expectState } from "./page.ts";
import { Server, startAndStop_ms } from "./server.ts";

/** A server that speaks TLS with a certificate made for this test. */
const test = base.extend<{ server: Server }>({
  ignoreHTTPSErrors: true,
  server: [
    async ({}, use) => {
      const folder = await mkdtemp(join(tmpdir(), "runreel-tls-"));
      const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
      const made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
      await promisify(execFile)("openssl", [...made, "-subj", "/CN=127.0.0.1", "-keyout", key, "-out", cert]);
      const server = await Server.start(undefined, { flags: ["--tls-cert", cert, "--tls-key", key] });
      try {
        await use(server);
      } finally {
        await server.remove();
        await rm(folder, { recursive: true });
      }
    },
    { timeout: startAndStop_ms },
  ],
});

const title = "ten tabs over HTTP/2 are all live, the tenth as soon as the others";
test(title, { tag: "@alone" }, async ({ context, server }, info) => {
  const api = await request.newContext({ baseURL: server.url, ignoreHTTPSErrors: true });
  const { run_id } = (await (await api.post("/api/runs", { data: { title: "Ten readers" } })).json()) as {
    run_id: string;
  };
  const tabs = [];
  const took_ms: number[] = [];
  for (let tab = 0; tab < 10; tab++) {
    const page = await context.newPage();
    const began = Date.now();
    await page.goto(`${server.url}/runs/${run_id}`);
    await expectState(page, "live");
    await expect(page.getByText("Ten readers").first()).toBeVisible();
    took_ms.push(Date.now() - began);
    const protocol = await page.evaluate(
      () => (performance.getEntriesByType("navigation")[0] as PerformanceNavigationTiming).nextHopProtocol,
    );
    expect(protocol).toBe("h2");
    tabs.push(page);
  }
  expectPrompt(took_ms, info);
  await api.post(`/api/runs/${run_id}/events`, { data: { type: "run.completed" } });
  for (const page of tabs) await expect(page.locator("header .badge")).toHaveText("completed");
  await api.dispose();
});
