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
