import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";

/** The short and the long, with code and with wide tables. */
const pages = ["", "/retention", "/javascript", "/protocol", "/operations", "/sql", "/performance", "/decisions"];

for (const scheme of ["light", "dark"] as const) {
  test(`the guide is readable for everybody in the ${scheme} theme`, async ({ page, server }) => {
    await page.emulateMedia({ colorScheme: scheme });
    for (const path of pages) {
      await page.goto(`${server.url}/docs/guide${path}`);
      expect(await violations(page), path).toEqual([]);
    }
    await page.getByRole("searchbox").fill("retention");
    await expect(page.locator("#found").getByRole("link").first()).toBeVisible();
    expect(await violations(page), "a search").toEqual([]);
  });
}

test("every page of the guide fits a telephone", async ({ page, server }) => {
  await page.setViewportSize({ width: 360, height: 740 });
  for (const path of pages) {
    await page.goto(`${server.url}/docs/guide${path}`);
    expect(await page.evaluate(() => document.documentElement.scrollWidth), path).toBe(360);
    expect(await violations(page), path).toEqual([]);
  }
});
