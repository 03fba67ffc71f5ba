import { expect, test as base } from "@playwright/test";
import { Producer } from "./producer.ts";
import { Server, startAndStop_ms } from "./server.ts";
import { secret, signed } from "./signed.ts";

const test = base.extend<{ server: Server }>({
  server: [
    async ({}, use) => {
      const server = await Server.start(undefined, { flags: ["--auth", "jwt"], env: { RUNREEL_JWT_SECRET: secret } });
      try {
        await use(server);
      } finally {
        await server.remove();
      }
    },
    { timeout: startAndStop_ms },
  ],
});

test("a guest is offered what the token may do, and its owner everything", async ({ page, server }) => {
  const producer = new Producer(() => server.url, signed("alice"));
  const run_id = await producer.createRun({ title: "Shared" });
  await producer.emit(run_id, { type: "run.completed", payload: { output: "done" } });
  const made = await fetch(`${server.url}/api/runs/${run_id}/tokens`, {
    method: "POST",
    headers: { authorization: `Bearer ${signed("alice")}`, "content-type": "application/json" },
    body: "{}",
  });
  const { token } = (await made.json()) as { token: string };

  await page.goto(`${server.url}/runs/${run_id}`);
  const signIn = async (as: string) => {
    await page.getByLabel("A JWT or an").fill(as);
    await page.getByRole("button", { name: "Save" }).click();
    await expect(page.getByRole("heading", { name: "Shared" })).toBeVisible();
  };
  await signIn(token);
  const header = page.locator("main header");
  const pages = page.getByRole("navigation", { name: "Pages" }).getByRole("link");
  await expect(pages).toHaveText(["Settings"]);
  for (const name of ["Share", "Delete", "Cancel run"]) await expect(header.getByRole("button", { name })).toHaveCount(0);
  await pages.click();
  await expect(page.getByRole("navigation", { name: "Settings" }).getByRole("link")).toHaveText(["General"]);

  await page.goto(`${server.url}/runs/${run_id}`);
  await page.getByRole("button", { name: /^Token/ }).click();
  await signIn(signed("alice"));
  await expect(pages).toHaveCount(9);
  for (const name of ["Share", "Delete"]) await expect(header.getByRole("button", { name })).toBeVisible();
});
