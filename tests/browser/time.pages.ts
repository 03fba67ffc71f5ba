import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";
import { tripRun } from "./trip.ts";

test("a run is shown as it was after any of its events, one event at a time, and the address keeps it", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await tripRun(producer, true);
  const last = await producer.lastSeq(run_id);
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "ended");
  const badge = page.locator("header .badge").first();
  const rows = page.getByRole("treegrid").locator("[aria-level]");
  const where = page.locator("[data-at]");
  await expect(rows).toHaveCount(8);

  await page.keyboard.press("[");
  await expect(where).toHaveAttribute("data-at", String(last));
  await expect(page.getByRole("region", { name: "The answer" })).toBeVisible();
  await page.keyboard.press("[");
  // One event before its end it was not over, and had no answer to show.
  await expect(badge).toHaveText("running");
  await expect(page.getByRole("region", { name: "The answer" })).toHaveCount(0);
  await expect(where).toHaveAttribute("data-at", String(last - 1));
  expect(await violations(page)).toEqual([]);

  await page.getByRole("slider", { name: "Event" }).fill("6");
  await expect(rows).toHaveCount(4);
  await expect(rows.filter({ hasText: "weather" }).getByRole("img", { name: "running" })).toBeVisible();
  await expect(page).toHaveURL(/at=6/);
  // Bars that had not ended reach to where time had come.
  await expect(page.locator("header [data-duration]")).toHaveText("450 ms");
  await expect(page.getByRole("button", { name: "Cancel run" })).toHaveCount(0);
  await page.reload();
  await expect(rows).toHaveCount(4);
  await expect(page.getByRole("slider", { name: "Event" })).toHaveValue("6");
  await page.keyboard.press("]");
  await expect(rows.filter({ hasText: "weather" }).getByRole("img", { name: "completed" })).toBeVisible();
  await page.getByRole("tab", { name: "Conversation" }).click();
  await expect(page.getByRole("region", { name: "Texts of the run" })).not.toContainText("Fly on Saturday");

  await page.getByRole("button", { name: "Now", exact: true }).click();
  await expect(page).not.toHaveURL(/at=/);
  await expect(badge).toHaveText("completed");
  await expect(page.getByRole("region", { name: "Texts of the run" })).toContainText("Fly on Saturday");
});

test("a replay plays to the end of a run that is over and stops there", async ({ page, server, producer }) => {
  const run_id = await tripRun(producer, true);
  const last = await producer.lastSeq(run_id);
  await page.goto(`${server.url}/runs/${run_id}?at=3`);
  const where = page.locator("[data-at]");
  await expect(where).toHaveAttribute("data-at", "3");
  await page.getByLabel("Speed").selectOption("16");
  const seen = page.evaluate(
    (last) =>
      new Promise<number>((arrived) => {
        const shown = document.querySelector("[data-at]") as HTMLElement;
        const values = new Set<string>();
        new MutationObserver(() => {
          values.add(shown.dataset["at"] ?? "");
          if (shown.dataset["at"] === last) arrived(values.size);
        }).observe(shown, { attributes: true });
      }),
    String(last),
  );
  await page.getByRole("button", { name: "Play", exact: true }).click();
  await expect(where).toHaveAttribute("data-at", String(last));
  expect(await seen).toBeGreaterThan(4);
  await expect(page).toHaveURL(new RegExp(`at=${last}`));
});

test("a run that goes on is paused by a key, and played from there until it is live again", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await tripRun(producer, false);
  const last = await producer.lastSeq(run_id);
  await page.goto(`${server.url}/runs/${run_id}?tab=log`);
  await expectState(page, "live");
  const where = page.locator("[data-at]");
  const log = page.getByRole("grid", { name: "Events of the run" });
  const pause = page.getByRole("button", { name: "Pause", exact: true });
  await expect(pause).toBeVisible();

  await page.keyboard.press(" ");
  await expect(where).toHaveAttribute("data-at", String(last));
  await expect(pause).toHaveCount(0);
  // Nothing is lost meanwhile, and what comes does not change what is shown.
  await producer.emit(run_id, { type: "log.info", payload: { message: "meanwhile" } });
  await expect(where).toContainText(`of ${last + 1}`);
  await expect(where).toHaveAttribute("data-at", String(last));
  await expect(log).not.toContainText("meanwhile");
  await page.keyboard.press("]");
  await expect(where).toHaveAttribute("data-at", String(last + 1));
  await expect(log).toContainText("meanwhile");
  await page.keyboard.press("[");
  await expect(log).not.toContainText("meanwhile");

  await page.keyboard.press(" ");
  await expect(where).toHaveCount(0);
  await expect(log).toContainText("meanwhile");
  await producer.emit(run_id, { type: "log.info", payload: { message: "live again" } });
  await expect(log).toContainText("live again");
});
