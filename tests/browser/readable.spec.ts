import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";
import { tripRun } from "./trip.ts";

test("the list of runs and a run are readable for everybody", async ({ page, server, producer }) => {
  await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
  const run_id = await tripRun(producer, true);
  await tripRun(producer, false);
  await page.goto(server.url);
  await expect(page.locator("[data-run]")).toHaveCount(2);
  await expectState(page, "live");
  expect(await violations(page)).toEqual([]);
  await page.emulateMedia({ colorScheme: "light" });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "ended");
  await page.getByRole("treegrid").getByRole("row").filter({ hasText: "weather" }).click();
  await expect(page.getByRole("complementary")).toContainText("Lisbon");
  expect(await violations(page)).toEqual([]);
});

test("the rows of a run do not move when what stands above them has come", async ({ page, server, producer }) => {
  const run_id = await tripRun(producer, true);
  await page.addInitScript(() => {
    const told = window as unknown as { shifted: number };
    told.shifted = 0;
    new PerformanceObserver((seen) => {
      for (const each of seen.getEntries()) told.shifted += (each as unknown as { value: number }).value;
    }).observe({ type: "layout-shift", buffered: true });
  });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expect(page.getByRole("region", { name: "The answer" })).toBeVisible();
  await expect(page.getByRole("treegrid").getByRole("row", { name: /weather/ })).toBeVisible();
  await expectState(page, "ended");
  expect(await page.evaluate(() => (window as unknown as { shifted: number }).shifted)).toBeLessThan(0.03);
});

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
