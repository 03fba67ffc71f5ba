import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";

test.use({ timezoneId: "America/Los_Angeles" });

interface Told {
  day: string;
  hour: string;
}

test("times are told in one zone, which is named and can be chosen", async ({ page, server, producer }) => {
  // As a person reads it three days later.
  const began_ms = Math.floor(Date.now() / 3_600_000) * 3_600_000 - 3 * 3_600_000 + 3_000;
  await page.clock.setFixedTime(began_ms + 3 * 86_400_000);
  const at = (ms: number) => new Date(began_ms + ms).toISOString();
  const run_id = await producer.createRun({ title: "Nightly", start: false, at: at(-3_000) });
  await producer.emit(
    run_id,
    { type: "run.started", at: at(0) },
    { type: "log.info", at: at(1_000), payload: { message: "on it" } },
    { type: "run.completed", at: at(21_000) },
  );
  const [there, utc] = ["America/Los_Angeles", "UTC"].map((timeZone) => {
    const told = (options: Intl.DateTimeFormatOptions) =>
      new Intl.DateTimeFormat("en-GB", { ...options, timeZone }).format(began_ms).replaceAll(",", "");
    return {
      day: told({ weekday: "short", day: "numeric", month: "short" }),
      hour: told({ hour: "2-digit", hourCycle: "h23" }),
    };
  }) as [Told, Told];

  await page.goto(server.url);
  await expectState(page, "live");
  const created = page.locator("[data-run] .created");
  await expect(created).toHaveText(`${there.day} ${there.hour}:00`);
  await page.getByRole("link", { name: "Nightly" }).click();
  const when = page.locator("[data-when]");
  await expect(when).toContainText(`${there.day} ${there.hour}:00:03 – ${there.hour}:00:24 GMT-`);
  await expect(when).toHaveAttribute("title", /^created .*\nbegan .*\nended .*$/);
  await page.getByRole("tab", { name: "Log" }).click();
  await expect(page.getByRole("row").filter({ hasText: "on it" })).toContainText(`${there.hour}:00:04`);

  await page.getByRole("button", { name: /^Times: GMT-/ }).click();
  await expect(when).toHaveText(`${utc.day} ${utc.hour}:00:03 – ${utc.hour}:00:24 UTC`);
  await expect(page.getByRole("row").filter({ hasText: "on it" })).toContainText(`${utc.hour}:00:04`);
  await page.goto(server.url);
  await expect(created).toHaveText(`${utc.day} ${utc.hour}:00`);
  await expect(page.getByRole("button", { name: "Times: UTC" })).toBeVisible();
  await page.goto(`${server.url}/settings`);
  await expect(page.getByLabel("Times")).toHaveValue("utc");
});
