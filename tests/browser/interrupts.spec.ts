import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";
import type { NewEvent, Producer } from "./producer.ts";

const prompt = "Delete the three branches nobody has touched for a year?";
const approval: NewEvent = {
  type: "interrupt.requested",
  span_id: "i1",
  payload: { kind: "approval", prompt, details: { branches: ["old/a", "old/b", "old/c"] } },
};
const question = (span_id: string, payload = {}): NewEvent => ({
  type: "interrupt.requested",
  span_id,
  payload: { kind: "question", prompt: "Which one?", ...payload },
});
const interrupted: NewEvent = { type: "run.interrupted" };

const card = (page: Page, span = "i1") => page.locator(`[data-interrupt="${span}"]`);
const rows = (page: Page, type: string) => page.getByRole("row").filter({ hasText: type });
const inSeconds = (seconds: number) => new Date(Date.now() + seconds * 1000).toISOString();

/** The payload of the answer that the log has. */
async function resolution(producer: Producer, run_id: string, span: string): Promise<unknown> {
  const response = await fetch(`${producer.url()}/api/runs/${run_id}/events?types=interrupt.resolved`);
  const page = (await response.json()) as { events: { span_id: string; payload: unknown }[] };
  return page.events.find((event) => event.span_id === span)?.payload;
}

test("an approval appears live, is given, and goes from both tabs when the log has it", async ({
  page,
  context,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Tidy up" });
  const address = `${server.url}/runs/${run_id}?tab=log`;
  await page.goto(address);
  const other = await context.newPage();
  await other.goto(address);
  for (const each of [page, other]) {
    await expectState(each, "live");
    await expect(each.locator("[data-interrupt]")).toHaveCount(0);
  }

  await producer.emit(run_id, approval, interrupted);
  for (const each of [page, other]) {
    await expect(card(each)).toContainText(prompt);
    await expect(card(each)).toContainText("old/b");
    await expect(card(each).getByRole("textbox")).toHaveCount(0);
  }
  await card(page).getByRole("button", { name: "Approve" }).click();
  await expect(rows(page, "interrupt.resolved")).toHaveCount(1);
  await expect(rows(page, "run.resumed")).toHaveCount(1);
  for (const each of [page, other]) await expect(card(each)).toHaveCount(0);
  expect(await resolution(producer, run_id, "i1")).toMatchObject({ interrupt_id: "i1", decision: "approve" });
  await other.close();
});

test("a question is answered with the keyboard alone, on a phone too", async ({ page, server, producer }) => {
  await page.setViewportSize({ width: 390, height: 800 });
  const run_id = await producer.createRun({ title: "Ask" });
  const text = `<b id="injected">the "second"</b>`;
  await producer.emit(run_id, question("q1", { expires_at: inSeconds(600) }), question("q2"), interrupted);
  await page.goto(`${server.url}/runs/${run_id}`);
  await expect(card(page, "q1")).toContainText(/expires in 9 m \d\d s/);
  for (const name of ["Send", "Approve", "Reject"]) {
    await expect(card(page, "q1").getByRole("button", { name })).toBeInViewport();
  }
  await card(page, "q1").getByRole("group", { name: "What is asked" }).focus();
  await page.keyboard.press("Tab");
  await expect(card(page, "q1").getByLabel("Answer")).toBeFocused();
  await page.keyboard.press("Enter");
  expect(await resolution(producer, run_id, "q1")).toBeUndefined();
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
  await expect(card(page, "q1")).toHaveCount(0);
  await expect(card(page, "q2")).toBeVisible();
  expect(await resolution(producer, run_id, "q1")).toMatchObject({ decision: "respond", value: text });
});

test("an answer that came too late says why and what stands", async ({
  page,
  server,
  producer,
  complaints,
}) => {
  const run_id = await producer.createRun({ title: "Too late" });
  await producer.emit(run_id, approval, interrupted);
  await page.goto(`${server.url}/runs/${run_id}`);
  // Somebody else's answer overtakes this one on its way.
  await page.route("**/resume", async (route) => {
    await producer.resume(run_id, { interrupt_id: "i1", decision: "reject" });
    await expect(page.locator("header").getByText("running")).toBeVisible();
    await expect(card(page)).toContainText("Sent approve, not yet in the log");
    await route.continue();
  });
  await card(page).getByRole("button", { name: "Approve" }).click();
  await expect(card(page).getByRole("alert")).toContainText("already answered differently");
  await expect(card(page).getByRole("alert")).toContainText("interrupt.resolved");
  await expect(card(page)).toContainText("Closed: reject");
  await expect(card(page).getByRole("button", { name: "Approve" })).toHaveCount(0);
  await card(page).getByRole("button", { name: "Dismiss" }).click();
  await expect(card(page)).toHaveCount(0);
  // The browser itself logs the 409; nothing else may be there.
  expect(complaints.filter((complaint) => !complaint.includes("status of 409"))).toEqual([]);
  complaints.length = 0;
});

test("an answer that did not arrive is not pretended: the card stays and can be used again", async ({
  page,
  server,
  producer,
  complaints,
}) => {
  const run_id = await producer.createRun({ title: "No way" });
  await producer.emit(run_id, approval, interrupted);
  await page.goto(`${server.url}/runs/${run_id}`);
  await page.route("**/resume", (route) => route.abort());
  await card(page).getByRole("button", { name: "Reject" }).click();
  await expect(card(page).getByRole("alert")).toContainText("cannot be reached");
  await page.unroute("**/resume");
  await card(page).getByRole("button", { name: "Reject" }).click();
  await expect(card(page)).toHaveCount(0);
  expect(await resolution(producer, run_id, "i1")).toMatchObject({ decision: "reject" });
  expect(complaints.filter((complaint) => !complaint.includes("Failed to load resource"))).toEqual([]);
  complaints.length = 0;
});

test("what expires, and what a cancelled run asked, goes by itself", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Nobody answers" });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  await producer.emit(run_id, question("q1", { expires_at: inSeconds(3) }), question("q2"), interrupted);
  await expect(card(page, "q1")).toContainText(/expires in \d s/);
  await expect(card(page, "q1")).toHaveCount(0);
  await expect(card(page, "q2")).toBeVisible();
  await page.getByRole("button", { name: "Cancel run" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel run" }).click();
  await expectState(page, "ended");
  await expect(card(page, "q2")).toHaveCount(0);
  await page.reload();
  await expectState(page, "ended");
  await expect(page.locator("[data-interrupt]")).toHaveCount(0);
});
