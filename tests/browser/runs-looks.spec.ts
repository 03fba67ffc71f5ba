import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState, upTo } from "./page.ts";
import type { Producer } from "./producer.ts";
import { tripRun } from "./trip.ts";

const screenshots = resolve(import.meta.dirname, "../../docs/screenshots");
const widths = [1280, 1024, 390];

/** Two trips of the same kind, one of them not at its end, and a failure to look at. */
async function severalRuns(producer: Producer): Promise<[string, string]> {
  for (const n of upTo(12)) {
    const at = new Date(Date.now() - n * 3_600_000).toISOString();
    const run_id = await producer.createRun({ title: `Nightly report ${n}`, agent: "reporter", tags: ["nightly"], at });
    await producer.emit(run_id, n % 4 === 0 ? { type: "run.failed", at } : { type: "run.completed", at });
  }
  const failed = await producer.createRun({ title: "Import the catalogue", agent: "importer", input: { rows: 4_711 } });
  await producer.emit(failed, { type: "run.failed", payload: { error: { message: "a file is missing" } } });
  return [await tripRun(producer, true), await tripRun(producer, false)];
}

for (const scheme of ["light", "dark"] as const) {
  test(`the list, the look at a run and the comparison are readable for everybody in the ${scheme} theme`, async ({
    page,
    server,
    producer,
  }) => {
    test.setTimeout(120_000);
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    const [a, b] = await severalRuns(producer);
    await mkdir(screenshots, { recursive: true });
    const expectReadable = async (what: string, name = "") => {
      expect(await violations(page), what).toEqual([]);
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect(wider, what).toBeLessThanOrEqual(0);
      const path = resolve(screenshots, `${name}-${scheme}.png`);
      if (name !== "" && page.viewportSize()?.width === 1280) await page.screenshot({ path });
    };
    for (const width of widths) {
      await page.setViewportSize({ width, height: 800 });
      await page.goto(server.url);
      await expect(page.locator("[data-run]")).toHaveCount(15);
      await expectState(page, "live");
      await page.locator("[data-run] .status").nth(2).click();
      const look = page.getByRole("complementary", { name: "A look at the run" });
      await expect(look.getByText("run.failed")).toBeVisible();
      await expect(look).toContainText("4711");
      await expectReadable(`a look at ${width}`);
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Columns" }).click();
      await expectReadable(`the columns at ${width}`);
      await page.keyboard.press("Escape");

      await page.goto(`${server.url}/compare?a=${a}&b=${b}`);
      await expect(page.locator("[data-step]")).toHaveCount(8);
      await page.getByRole("button", { name: "search_flights tool" }).first().click();
      await expect(page.locator(".detail")).toContainText("airline");
      await expectReadable(`the comparison at ${width}`, "compare");
    }
  });
}
