import { expect, test } from "./fixtures.ts";
import { expectState, upTo } from "./page.ts";

test("the failed call of a run is found, opened and copied, and what is asked is approved, with the keyboard alone", async ({
  page,
  context,
  server,
  producer,
}) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const run_id = await producer.createRun({ title: "Import", agent: "importer" });
  const call = (n: number) => [
    { type: "tool.started", span_id: `t${n}`, payload: { name: `read part ${n}` } },
    n === 30
      ? { type: "tool.failed", span_id: `t${n}`, payload: { error: { message: "429 from the ledger" } } }
      : { type: "tool.completed", span_id: `t${n}`, payload: { result: "ok" } },
  ];
  await producer.emit(
    run_id,
    ...upTo(60).flatMap(call),
    { type: "interrupt.requested", span_id: "i1", payload: { kind: "approval", prompt: "Go on without it?" } },
    { type: "run.interrupted" },
  );
  await page.goto(server.url);
  await expectState(page, "live");
  await expect(page.locator("[data-run]")).toHaveCount(1);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Import" })).toBeVisible();
  await expectState(page, "live");
  await page.keyboard.press("e");
  await expect(page.getByRole("row", { selected: true })).toContainText("read part 30");
  await expect(page.getByRole("complementary")).toContainText("429 from the ledger");
  await page.keyboard.press("c");
  const copied = () => page.evaluate(async () => (await navigator.clipboard.readText()).replace(/\s/g, ""));
  await expect.poll(copied).toContain('"name":"readpart30"');
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("combobox", { name: "Pages, runs and commands" })).toBeFocused();
  await page.keyboard.type("inbox");
  await page.keyboard.press("Enter");
  await expect(page.locator("[data-card]")).toHaveCount(1);
  await page.keyboard.press("a");
  await expect(page.getByText("No run waits for a person.")).toBeVisible();
});
