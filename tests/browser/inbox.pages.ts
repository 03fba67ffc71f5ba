import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";
import type { NewEvent, Producer } from "./producer.ts";

const asking = async (producer: Producer, title: string, payload: Record<string, unknown>): Promise<string> => {
  const run_id = await producer.createRun({ title, agent: "janitor" });
  const asked: NewEvent = { type: "interrupt.requested", span_id: "i1", payload };
  await producer.emit(run_id, asked, { type: "run.interrupted" });
  return run_id;
};
const approval = { kind: "approval", prompt: "Delete it?", args: { path: "/tmp/x" } };

/** The answer that the log has. */
async function answerOf(producer: Producer, run_id: string): Promise<unknown> {
  const response = await fetch(`${producer.url()}/api/runs/${run_id}/events?types=interrupt.resolved`);
  return ((await response.json()) as { events: { payload: unknown }[] }).events[0]?.payload;
}

test("what all runs ask stands in one place, live, and is answered there", async ({ page, server, producer }) => {
  const first = await asking(producer, "Tidy up", approval);
  await page.goto(`${server.url}/inbox`);
  const cards = page.locator("[data-card]");
  await expect(cards).toHaveCount(1);
  await expectState(page, "live");
  await expect(page).toHaveTitle("(1) Inbox · Runreel");
  await expect(page.locator("link[rel=icon]")).toHaveAttribute("href", "/favicon-asking.svg");
  await expect(page.getByRole("link", { name: /Inbox/ })).toContainText("1");
  const second = await asking(producer, "Build", {
    kind: "question",
    prompt: "Where?",
    options: ["here", { label: "There", value: 2 }],
  });
  await expect(cards).toHaveCount(2);
  expect(await violations(page)).toEqual([]);

  await cards.nth(1).getByRole("button", { name: "There" }).click();
  await expect(cards).toHaveCount(1);
  expect(await answerOf(producer, second)).toMatchObject({ decision: "respond", value: 2 });
  await page.keyboard.press("a");
  await expect(page.getByText("No run waits for a person.")).toBeVisible();
  expect(await answerOf(producer, first)).toMatchObject({ decision: "approve" });
  await expect(page).toHaveTitle("Inbox · Runreel");
});

test("a rejection has its reason, and arguments are edited where the run takes others", async ({
  page,
  server,
  producer,
}) => {
  const first = await asking(producer, "Reject me", approval);
  const second = await asking(producer, "Edit me", { ...approval, allowed_decisions: ["approve", "edit", "reject"] });
  await page.goto(`${server.url}/inbox`);
  const card = (title: string) => page.locator("[data-card]").filter({ hasText: title });
  await expect(card("Reject me").getByRole("button", { name: "Edit the arguments" })).toHaveCount(0);
  await card("Reject me").getByRole("button", { name: "Add a note" }).click();
  await page.keyboard.type("still needed");
  await card("Reject me").getByRole("button", { name: "Reject" }).click();
  await expect(card("Reject me")).toHaveCount(0);
  expect(await answerOf(producer, first)).toMatchObject({ decision: "reject", value: "still needed" });

  await card("Edit me").getByRole("button", { name: "Edit the arguments" }).click();
  const args = card("Edit me").getByLabel("Arguments");
  await expect(args).toBeFocused();
  await args.fill("{ no");
  await card("Edit me").getByRole("button", { name: "Approve" }).click();
  await expect(card("Edit me").getByRole("alert")).toContainText("no JSON");
  await args.fill('{"path": "/tmp/y"}');
  await card("Edit me").getByRole("button", { name: "Approve" }).click();
  await expect(card("Edit me")).toHaveCount(0);
  expect(await answerOf(producer, second)).toMatchObject({ decision: "approve", value: { args: { path: "/tmp/y" } } });
});

test("every page tells how much is asked, and follows what its runs ask", async ({ page, server, producer }) => {
  await page.goto(server.url);
  await expectState(page, "live");
  await expect(page).toHaveTitle("Runs · Runreel");
  const run_id = await asking(producer, "Tidy up", approval);
  await expect(page).toHaveTitle("(1) Runs · Runreel");
  await producer.resume(run_id, { interrupt_id: "i1", decision: "approve" });
  await expect(page).toHaveTitle("Runs · Runreel");
});
