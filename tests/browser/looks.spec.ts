import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";
import type { Producer } from "./producer.ts";
import { tripRun } from "./trip.ts";

const screenshots = resolve(import.meta.dirname, "../../docs/screenshots");
const schemes = ["light", "dark"] as const;

const askedEvent = (span_id: string, kind: string) => ({
  type: "interrupt.requested",
  span_id,
  payload: {
    kind,
    prompt: "Delete the branches nobody has touched for a year?",
    expires_at: new Date(Date.now() + 3_600_000).toISOString(),
    details: { branches: ["old/a", "old/b"], force: false },
  },
});

async function severalRuns(producer: Producer): Promise<string> {
  const queued = await producer.createRun({ title: "Summarise the week's tickets", agent: "reporter" });
  await producer.emit(queued, { type: "run.waiting", payload: { reason: "a worker" } });
  const failed = await producer.createRun({ title: "Import the catalogue", agent: "importer" });
  await producer.emit(failed, { type: "run.failed", payload: { error: { message: "a file is missing" } } });
  const cancelled = await producer.createRun({ title: "Re-index the archive", agent: "indexer" });
  await producer.emit(cancelled, { type: "run.cancelled", payload: { reason: "not today" } });
  const asked = await producer.createRun({ title: "Delete old branches", agent: "janitor" });
  await producer.emit(asked, askedEvent("i1", "approval"), askedEvent("i2", "question"), {
    type: "run.interrupted",
    payload: { reason: "approval" },
  });
  await tripRun(producer, false);
  return tripRun(producer, true);
}

for (const scheme of schemes) {
  test(`the pages are readable for everybody in the ${scheme} theme`, async ({ page, server, producer }) => {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await page.goto(server.url);
    await expect(page.getByRole("heading", { name: "No runs yet" })).toBeVisible();
    expect(await violations(page)).toEqual([]);

    const run_id = await severalRuns(producer);
    await expect(page.locator("[data-run]")).toHaveCount(6);
    await expectState(page, "live");
    await expect(page.getByRole("group", { name: "Status" })).toContainText(/completed\s*1/);
    expect(await violations(page)).toEqual([]);
    await mkdir(screenshots, { recursive: true });
    await page.screenshot({ path: resolve(screenshots, `runs-${scheme}.png`) });

    await page.getByRole("row").filter({ hasText: "completed" }).getByRole("link").click();
    await expect(page).toHaveURL(new RegExp(run_id));
    await expectState(page, "ended");
    await page.getByRole("treegrid").getByRole("row").filter({ hasText: "weather" }).click();
    await expect(page.getByRole("complementary")).toContainText("Lisbon");
    expect(await violations(page)).toEqual([]);
    await page.screenshot({ path: resolve(screenshots, `run-${scheme}.png`) });

    for (const tab of ["Log", "Conversation", "Artifacts", "State", "JSON"]) {
      await page.getByRole("tab", { name: tab }).click();
      await expect(page.getByRole("tab", { name: tab })).toHaveAttribute("aria-selected", "true");
      expect(await violations(page), tab).toEqual([]);
    }
    await page.keyboard.press("?");
    await expect(page.getByRole("dialog")).toBeVisible();
    expect(await violations(page), "keys").toEqual([]);

    await page.goto(`${server.url}/?status=interrupted`);
    await page.getByRole("link", { name: "Delete old branches" }).click();
    await expect(page.locator("[data-interrupt]")).toHaveCount(2);
    expect(await violations(page), "interrupts").toEqual([]);

    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByRole("link", { name: "API tokens" }).click();
    await page.getByRole("button", { name: "New token" }).click();
    expect(await violations(page), "a new token").toEqual([]);
    await page.getByLabel("Name").fill("reports");
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByRole("button", { name: "Revoke reports" }).click();
    expect(await violations(page), "a token to revoke").toEqual([]);
    await page.keyboard.press("Escape");
    expect(await violations(page), "tokens").toEqual([]);
  });
}

test("the theme button overrules the system's choice and is remembered", async ({ page, server }) => {
  await page.emulateMedia({ colorScheme: "dark" });
  await page.goto(server.url);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await ground();
  await page.getByRole("button", { name: "Theme: system" }).click();
  expect(await ground()).not.toBe(dark);
  await page.reload();
  await expect(page.getByRole("button", { name: "Theme: light" })).toBeVisible();
  expect(await ground()).not.toBe(dark);
});

test("the pages carry a strict policy", async ({ page, server }) => {
  const response = await page.goto(server.url);
  const policy = response?.headers()["content-security-policy"] ?? "";
  expect(policy).toContain("default-src 'self'");
  expect(policy).not.toContain("unsafe-");
  expect(policy).toContain("require-trusted-types-for 'script'");
  expect(response?.headers()["x-content-type-options"]).toBe("nosniff");
});
