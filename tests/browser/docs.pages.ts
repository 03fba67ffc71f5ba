import { expect, test } from "./fixtures.ts";

test("the page of the API lists the routes, and loads Swagger UI when one is opened", async ({
  page,
  server,
  complaints,
}) => {
  const swagger: string[] = [];
  page.on("request", (request) => {
    if (request.url().includes("swagger")) swagger.push(request.url());
  });
  await page.goto(`${server.url}/docs`);
  const route = page.getByRole("link", { name: "POST /api/runs Create" });
  await expect(route).toBeVisible();
  expect(swagger).toEqual([]);
  await route.press("Enter");
  await expect(page.locator("#swagger-ui #operations-runs-create_run.is-open")).toBeVisible();
  await expect(page.getByRole("heading", { name: "Runreel API" })).toBeHidden();
  expect(swagger).toHaveLength(2);

  // The address is that of the operation; the button opens them all.
  await page.reload();
  await expect(page.locator("#operations-runs-create_run.is-open")).toBeVisible();
  await page.goto(`${server.url}/`);
  await page.getByRole("link", { name: "API", exact: true }).click();
  await page.getByRole("button", { name: "open Swagger UI" }).click();
  await expect(page.locator("#operations-runs-create_run")).toBeVisible();

  // Swagger UI's own remark about every address with a `_`; the ids of our operations have them.
  const isRemark = (text: string) => text.startsWith("console: Deprecated: escaping deep link whitespace");
  complaints.splice(0, complaints.length, ...complaints.filter((text) => !isRemark(text)));
});
