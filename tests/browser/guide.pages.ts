import type { Page } from "@playwright/test";
import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";

const title = (page: Page, name: string) => page.getByRole("heading", { level: 1, name, exact: true });

test("the guide leads from page to page, and to the headings in them", async ({ page, server }) => {
  await page.goto(`${server.url}/docs`);
  await page.getByRole("link", { name: "Guide" }).click();
  await expect(title(page, "The Runreel guide")).toBeVisible();

  await page.getByRole("main").getByRole("link", { name: "Remove old runs" }).click();
  await expect(page).toHaveURL(`${server.url}/docs/guide/retention`);
  await expect(title(page, "Remove old runs")).toBeVisible();
  await expect(page.locator("#pages [aria-current=page]")).toHaveText("Remove old runs");

  await page.getByRole("main").getByRole("link", { name: "stream.gap" }).click();
  await expect(page).toHaveURL(`${server.url}/docs/guide/protocol#control-frames`);
  await expect(page.getByRole("heading", { name: "Control frames" })).toBeInViewport();

  const contents = page.getByRole("navigation", { name: "On this page" });
  await contents.getByRole("link", { name: "Errors", exact: true }).click();
  await expect(page.getByRole("heading", { name: "Errors", exact: true })).toBeInViewport();
  await page.getByRole("navigation", { name: "Neighbours" }).getByRole("link").last().click();
  await expect(title(page, "Asking the log with SQL")).toBeVisible();
});

test("the search is used with the keyboard alone, and its index is loaded by the first word", async ({
  page,
  server,
}) => {
  const indexes: string[] = [];
  page.on("request", (request) => {
    if (request.url().endsWith(".json")) indexes.push(request.url());
  });
  await page.goto(`${server.url}/docs/guide`);
  const box = page.getByRole("searchbox", { name: "Search the guide" });
  const results = page.locator("#found").getByRole("link");
  await page.keyboard.press("/");
  await expect(box).toBeFocused();
  expect(indexes).toEqual([]);

  await page.keyboard.type("heartbeat lease");
  await expect(results.filter({ hasText: "The wire contract" }).first()).toBeVisible();
  expect(indexes).toHaveLength(1);
  await expect(page.getByRole("status")).toHaveText(/^\d+ sections? found\.$/);
  await page.keyboard.press("ArrowDown");
  await expect(results.first()).toBeFocused();
  await page.keyboard.press("ArrowUp");
  await expect(box).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(results.first()).toBeHidden();
  await expect(box).toBeFocused();

  await box.fill("pg_dump");
  const first = results.filter({ hasText: "Back up and restore" }).first();
  await expect(first).toBeVisible();
  while (!(await first.evaluate((link) => link === document.activeElement))) {
    await page.keyboard.press("ArrowDown");
  }
  await page.keyboard.press("Enter");
  await expect(title(page, "Back up and restore")).toBeVisible();

  await page.keyboard.press("/");
  await page.keyboard.type("qqqqqqqq");
  await expect(page.getByRole("status")).toHaveText("Nothing found.");
});

test("a telephone shows the guide without scrolling sideways", async ({ page, server }) => {
  await page.setViewportSize({ width: 360, height: 740 });
  await page.goto(`${server.url}/docs/guide/protocol`);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
  expect(await violations(page)).toEqual([]);
  await page.getByRole("searchbox").fill("retention");
  await expect(page.locator("#found").getByRole("link").first()).toBeInViewport();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
  await page.keyboard.press("Escape");
  await page.getByRole("link", { name: "Pages", exact: true }).click();
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Security" }).click();
  await expect(title(page, "Security")).toBeVisible();
});

test.describe("without scripts", () => {
  test.use({ javaScriptEnabled: false });

  test("the guide is there, but for its search", async ({ page, server }) => {
    await page.goto(`${server.url}/docs/guide/backup`);
    await expect(page.getByRole("searchbox")).toBeHidden();
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Upgrade" }).click();
    await expect(title(page, "Upgrade")).toBeVisible();
  });
});
