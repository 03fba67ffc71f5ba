import { expect } from "./fixtures.ts";
import { say, test, write } from "./stock.ts";

// A name that is no file's name is refused.
test.use({ allowsStatus: [400] });

test("a chat is a session that is read, followed and ended", async ({ page, server, producer }) => {
  await page.clock.install();
  await page.goto(`${server.url}/sessions`);
  await expect(page.getByText("No sessions yet.")).toBeVisible();
  await write(producer, "door", "Is anybody there?");
  await page.reload();
  const row = page.locator("[data-session]");
  await expect(row).toHaveCount(1);
  await expect(row).toContainText("open");
  await page.getByRole("button", { name: "web" }).click();
  await expect(page).toHaveURL(/channel=web/);
  await row.getByRole("link", { name: "door", exact: true }).click();
  await expect(page.getByRole("heading", { name: "door" })).toBeVisible();
  const said = page.getByRole("log").getByRole("article");
  await expect(said.first()).toContainText("Is anybody there?");

  await write(producer, "door", "It rains.");
  await expect(async () => {
    await page.clock.fastForward(6_000);
    await expect(said.filter({ hasText: "It rains." }).first()).toBeVisible({ timeout: 500 });
  }).toPass();
  await page.getByRole("button", { name: "End the session" }).click();
  await expect(page.getByText(/ended \(ended\)/)).toBeVisible();
  await page.getByRole("link", { name: "Its thread" }).click();
  await expect(page.getByRole("heading", { name: "web_door" })).toBeVisible();
});

test("a thread is saved as a session, read there, and restored into a thread that goes on", async ({
  page,
  server,
  producer,
}) => {
  await say(producer, "trip", "Where to?", "Rome.");
  await page.goto(`${server.url}/threads/trip`);
  await page.getByRole("button", { name: "Save …" }).click();
  await page.getByLabel("Name").fill("../bad");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.getByRole("dialog").getByRole("alert")).toContainText("name");
  await page.getByLabel("Name").fill("rome");
  await page.getByLabel("Description").fill("Before the booking");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.getByText("Saved as rome.")).toBeVisible();

  await page.getByRole("link", { name: "Sessions" }).click();
  await page.getByRole("tab", { name: "Saved" }).click();
  await page.locator("[data-saved=rome]").click();
  await expect(page).toHaveURL(/name=rome/);
  const saved = page.getByRole("region", { name: "Saved session" });
  await expect(saved.getByRole("article")).toHaveCount(2);
  await expect(saved).toContainText("Before the booking");

  await page.getByRole("button", { name: "Restore here" }).click();
  await page.getByLabel("The thread's id").fill("trip-again");
  await page.getByRole("button", { name: "Restore", exact: true }).click();
  await expect(page).toHaveURL(/threads\/trip-again\?tab=checkpoints&checkpoint=/);
  await expect(page.getByRole("region", { name: "Checkpoint" })).toContainText("messages");

  await page.goBack();
  await page.getByRole("button", { name: "Delete …" }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await expect(page.getByText("No saved sessions.")).toBeVisible();
  const left = (await (await fetch(`${server.url}/api/saved-sessions`)).json()) as { saved_sessions: unknown[] };
  expect(left.saved_sessions).toEqual([]);
});
