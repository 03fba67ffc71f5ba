import { readFile } from "node:fs/promises";
import { expect, test } from "./fixtures.ts";
import { encoded } from "./png.ts";
import { image, upload } from "./stock.ts";

test("the artifacts of all runs are a gallery that is narrowed, opened by its address and downloaded", async ({
  page,
  server,
  producer,
}) => {
  await page.goto(`${server.url}/artifacts`);
  await expect(page.getByText("No artifacts yet.")).toBeVisible();
  const first = await producer.createRun({ title: "Nightly report", agent: "reporter" });
  const second = await producer.createRun({ title: "Import", agent: "importer" });
  await upload(producer, first, "report.md", "text/markdown", "# Report\n\nAll good.");
  await upload(producer, first, "chart.png", "image/png", image());
  await upload(producer, second, "rows.csv", "text/csv", "name,calls\nweather,12\n");
  await page.reload();
  const cards = page.locator("[data-artifact]");
  await expect(cards).toHaveCount(3);
  await expect(cards.first()).toContainText("rows.csv");
  await expect(cards.filter({ hasText: "report.md" })).toContainText("All good.");
  await expect(cards.filter({ hasText: "chart.png" }).locator("canvas")).toBeVisible();

  await page.getByLabel("Kind").selectOption("images");
  await expect(cards).toHaveCount(1);
  await page.getByLabel("Kind").selectOption("all kinds");
  await page.getByLabel("Search artifacts").fill("import");
  await expect(cards).toHaveCount(1);
  await expect(page).toHaveURL(/q=import/);
  await page.getByRole("button", { name: "Open rows.csv" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByRole("columnheader", { name: "calls" })).toBeVisible();
  await expect(page).toHaveURL(/open=/);
  await page.reload();
  const saved = page.waitForEvent("download");
  await dialog.getByRole("button", { name: "Download" }).click();
  expect(await readFile(await (await saved).path(), "utf8")).toBe("name,calls\nweather,12\n");
  await dialog.getByRole("link", { name: "Import, event #3" }).click();
  await expect(page.getByRole("heading", { name: "Import" })).toBeVisible();
  await page.goBack();
  await expect(dialog.getByRole("columnheader", { name: "calls" })).toBeVisible();
});

test("an artifact that is a page is shown as the text that it is", async ({ page, server, producer }) => {
  const evil = "<script>alert(1)</script><img src=x onerror=alert(2)>";
  const run_id = await producer.createRun({ title: evil });
  await upload(producer, run_id, "evil.html", "text/html", evil);
  await upload(producer, run_id, "evil.svg", "image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg">${evil}</svg>`);
  await upload(producer, run_id, "broken.png", "image/png", "no image");
  await page.goto(`${server.url}/artifacts`);
  await expect(page.locator("[data-artifact]").filter({ hasText: "evil.html" })).toContainText(evil);
  await expect(page.locator("[data-artifact]").filter({ hasText: "broken.png" })).toContainText("png");
  await page.getByRole("button", { name: "Open evil.svg" }).click();
  await expect(page.getByRole("dialog")).toContainText(evil);
});

test("an image of more pixels than a page has memory for is offered as a file", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Bomb" });
  const bomb = encoded(30_000, 30_000, new Uint8Array(90_001));
  await upload(producer, run_id, "bomb.png", "image/png", bomb);
  await upload(producer, run_id, "chart.png", "image/png", image());
  await page.goto(`${server.url}/artifacts`);
  const card = (name: string) => page.locator("[data-artifact]").filter({ hasText: name });
  await expect(card("chart.png").locator("canvas")).toBeVisible();
  await expect(card("bomb.png").locator("canvas")).toHaveCount(0);
  await page.getByRole("button", { name: "Open bomb.png" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByRole("alert")).toHaveText("It has too many pixels to be shown. Download it.");
  const saved = page.waitForEvent("download");
  await dialog.getByRole("button", { name: "Download" }).click();
  expect(await readFile(await (await saved).path())).toEqual(bomb);
});
