import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";
import type { Producer } from "./producer.ts";
import { put, say } from "./stock.ts";

const messages = "section[data-turn] article";

async function thread(producer: Producer): Promise<void> {
  await say(producer, "trip", "Where to?", "**Rome**, by train.");
  await say(producer, "trip", "And then?", "Home.");
  const states = [["1f01", null, 0], ["1f02", "1f01", 1]] as const;
  for (const [id, parent_id, step] of states) {
    const messages = [{ role: "user", content: "Where to?" }, { role: "assistant", content: "Rome." }];
    await put(producer, `/api/threads/trip/checkpoints/${id}`, {
      parent_id,
      checkpoint: { t: "json", b: btoa('{"v":1}') },
      metadata: { source: "loop", step },
      versions: { messages: step },
      blobs: { messages: { version: step, t: "json", b: btoa(JSON.stringify(messages.slice(0, step + 1))) } },
    });
  }
}

test("a thread is one conversation over its runs, and goes on live", async ({ page, server, producer }) => {
  await thread(producer);
  await page.goto(`${server.url}/threads`);
  const row = page.locator("[data-thread=trip]");
  await expect(row).toContainText("2");
  await row.getByRole("link", { name: "trip" }).click();
  await expect(page.locator(messages)).toHaveCount(4);
  await expect(page.locator(messages).nth(1).locator("strong").nth(1)).toHaveText("Rome");
  await expectState(page, "live");

  const run_id = await producer.createRun({ title: "Third", thread_id: "trip", agent: "planner" });
  await producer.emit(run_id, producer.token("m1", "By bo"));
  const last = page.locator(messages).last();
  await expect(last).toContainText("By bo");
  await expect(last).toHaveAttribute("data-open", "true");
  await producer.emit(run_id, { type: "message.completed", span_id: "m1", payload: { text: "By boat." } });
  await expect(last).toContainText("By boat.");
  await expect(last).toHaveAttribute("data-open", "false");
  await expect(page.locator(messages)).toHaveCount(5);
  await expect(page.locator("[data-turn]").last()).toContainText("Third");

  await page.getByRole("tab", { name: "Runs" }).click();
  await expect(page.locator("tr[data-run]")).toHaveCount(3);
  await page.getByRole("link", { name: "Third" }).click();
  await expect(page.getByRole("heading", { name: "Third" })).toBeVisible();
  await page.goBack();
  await expect(page.locator("tr[data-run]")).toHaveCount(3);
});

test("a checkpoint is opened by its address and forked into a thread that continues from it", async ({
  page,
  server,
  producer,
}) => {
  await thread(producer);
  await page.goto(`${server.url}/threads/trip?tab=checkpoints`);
  const list = page.getByRole("list", { name: "Checkpoints" }).getByRole("button");
  await expect(list).toHaveCount(2);
  await list.first().focus();
  await page.keyboard.press("ArrowDown");
  await expect(page).toHaveURL(/checkpoint=1f02/);
  await page.keyboard.press("ArrowDown");
  await expect(page).toHaveURL(/checkpoint=1f01/);
  await page.reload();
  const detail = page.getByRole("region", { name: "Checkpoint" });
  await expect(detail).toContainText("Where to?");
  await expect(detail).not.toContainText("Rome.");

  await page.getByRole("button", { name: "Fork from here" }).click();
  await page.getByLabel("The new thread's id").fill("trip");
  await page.getByRole("button", { name: "Fork", exact: true }).click();
  await expect(page.getByRole("dialog").getByRole("alert")).toContainText("There is a thread of this name");
  await page.getByLabel("The new thread's id").fill("trip-again");
  await page.getByRole("button", { name: "Fork", exact: true }).click();
  await expect(page).toHaveURL(`${server.url}/threads/trip-again`);
  await page.getByRole("tab", { name: "Checkpoints" }).click();
  await expect(list).toHaveCount(1);
  const latest = await fetch(`${server.url}/api/threads/trip-again/checkpoints/latest`);
  expect(await latest.json()).toMatchObject({ checkpoint_id: "1f01", parent_id: null, versions: { messages: 0 } });
  // The first thread is as it was.
  const before = await fetch(`${server.url}/api/threads/trip/checkpoints/latest`);
  expect(await before.json()).toMatchObject({ checkpoint_id: "1f02" });
});

test("a thread is copied as a whole, and deleted after a question", async ({ page, server, producer }) => {
  await thread(producer);
  await page.goto(`${server.url}/threads/trip`);
  await page.getByRole("button", { name: "Copy …" }).click();
  await page.getByRole("button", { name: "Copy", exact: true }).click();
  await expect(page).toHaveURL(`${server.url}/threads/trip-copy`);
  await page.getByRole("tab", { name: "Checkpoints" }).click();
  await expect(page.getByRole("list", { name: "Checkpoints" }).getByRole("button")).toHaveCount(2);
  await page.getByRole("button", { name: "Delete …" }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await expect(page).toHaveURL(`${server.url}/threads`);
  await expect(page.locator("[data-thread]")).toHaveCount(1);
});

test.describe("a thread that is not there", () => {
  test.use({ allowsStatus: [404] });
  test("is told to be missing", async ({ page, server }) => {
    await page.goto(`${server.url}/threads/nowhere`);
    await expect(page.getByRole("alert")).toContainText(/not found|no thread/i);
  });
});

test("no threads is a page that tells how one begins", async ({ page, server }) => {
  await page.goto(`${server.url}/threads`);
  await expect(page.getByText("No threads yet.")).toBeVisible();
});
