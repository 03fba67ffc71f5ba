import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";

test("a run that has ended says whether its log is as it was written, and which event is not", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Ledger" });
  const paid = { type: "log.info", payload: { text: "paid 100" } };
  await producer.emit(run_id, paid, { type: "log.info", payload: { text: "checked" } });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  const verification = page.locator("[data-verification]");
  await expect(page.locator("[data-event-count='4']")).toBeVisible();
  await expect(verification).toHaveCount(0);
  await producer.emit(run_id, { type: "run.completed", payload: {} });
  await expect(verification).toHaveText("log verified");
  await expect(verification).toHaveAttribute("title", /^Every event is as it was written\./);
  // As somebody would who owns the tables.
  await server.execute(
    "alter table store.run_event disable trigger all",
    `update store.run_event set payload = '{"text":"paid 900"}' where run_id = '${run_id}' and seq = 3`,
  );
  await verification.click();
  await expect(verification).toHaveText("log altered at #3");
  await expect(verification).toHaveAttribute("title", /^#3: the event, or the link/);
  await verification.click();
  await expect(page).toHaveURL(/tab=log/);
  await expect(page.getByRole("complementary")).toContainText("paid 900");
});

test("a long run is verified when somebody asks for it", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Long" });
  const step = { type: "custom.step", payload: { name: "x".repeat(40) } };
  for (let batch = 0; batch < 43; batch++) await producer.emit(run_id, ...Array.from({ length: 500 }, () => step));
  await producer.emit(run_id, { type: "run.completed", payload: {} });
  const asked: string[] = [];
  page.on("request", (request) => request.url().includes("/verify") && asked.push(new URL(request.url()).search));
  await page.goto(`${server.url}/runs/${run_id}`);
  const button = page.getByRole("button", { name: "verify log" });
  await expect(button).toBeVisible();
  expect(asked).toEqual([]);
  await button.click();
  await expect(page.getByRole("button", { name: "log verified" })).toBeVisible();
  expect(asked.length).toBe(2);
});
