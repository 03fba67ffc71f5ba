import { expect, test } from "./fixtures.ts";
import { cardText, expectEvents, expectState, seqsInList, upTo } from "./page.ts";

test.use({ allowsCuts: true });

const line = (n: number) => ({ type: "log.info", payload: { message: `line ${n}` } });

test("a cut in mid-message loses nothing and repeats nothing", async ({ page, wire, producer }) => {
  const run_id = await producer.createRun({ title: "Cut run" });
  await page.goto(`${wire.url}/runs/${run_id}?tab=output`);
  await expectState(page, "live");
  await producer.emit(
    run_id,
    ...upTo(20).map(line),
    producer.token("m1", "One, "),
    producer.token("m1", "two 😀, "),
  );
  await expect(cardText(page, "m1")).toHaveText("One, two 😀, ");

  wire.cut();
  await expectState(page, "reconnecting");
  await expect(page.getByText(/Reconnecting in \d+ s/)).toBeVisible();
  await producer.emit(run_id, producer.token("m1", "three, "), ...upTo(15).map((n) => line(20 + n)));
  wire.heal();

  await expectState(page, "live");
  await expect(cardText(page, "m1")).toHaveText("One, two 😀, three, ");
  await producer.emit(run_id, producer.token("m1", "four."));
  await expect(cardText(page, "m1")).toHaveText("One, two 😀, three, four.");
  await expect(page.getByText("Some characters are missing")).toHaveCount(0);

  wire.cut();
  await expectState(page, "reconnecting");
  const text = "One, two 😀, three, four.";
  const content = [{ type: "text", text }];
  await producer.emit(run_id, {
    type: "message.completed",
    span_id: "m1",
    payload: { role: "assistant", content },
  });
  // Long enough that the button is there to be pressed, and not gone because the pause is over.
  await expect(page.getByText(/Reconnecting in ([4-9]|\d\d) s/)).toBeVisible({ timeout: 30_000 });
  wire.heal();
  await page.getByRole("button", { name: "Retry now" }).click();
  await expectState(page, "live");
  await expect(page.locator("article")).toHaveCount(1);
  await expect(cardText(page, "m1")).toHaveText(text);

  const { last_seq } = await producer.emit(run_id, { type: "run.completed" });
  await expectState(page, "ended");
  await page.getByRole("tab", { name: "Log" }).click();
  await expectEvents(page, last_seq);
  expect(await seqsInList(page)).toEqual(upTo(last_seq));
});

test("a server that is killed and started again in mid-run is resumed by itself", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Killed run" });
  await page.goto(`${server.url}/runs/${run_id}?tab=log`);
  await expectState(page, "live");
  const { last_seq: before } = await producer.emit(run_id, ...upTo(30).map(line));
  await expectEvents(page, before);

  await server.kill();
  await expectState(page, "reconnecting");
  await server.up();
  await producer.emit(run_id, ...upTo(30).map((n) => line(30 + n)));
  await expectState(page, "live");

  const { last_seq } = await producer.emit(run_id, { type: "run.completed" });
  await expectState(page, "ended");
  await expectEvents(page, last_seq);
  expect(await seqsInList(page)).toEqual(upTo(last_seq));
});

test("tokens that are sent again after a restart in mid-message do not double the text", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Restarted message" });
  await page.goto(`${server.url}/runs/${run_id}?tab=output`);
  await expectState(page, "live");
  await producer.emit(run_id, producer.token("m1", "The first half "));
  await expect(cardText(page, "m1")).toHaveText("The first half ");
  await server.kill();
  await expectState(page, "reconnecting");
  await server.up();
  await expectState(page, "live");
  await producer.emit(run_id, producer.token("m1", "The first half and "));
  await expect(cardText(page, "m1")).toHaveText("The first half and ");
  await producer.emit(run_id, producer.token("m1", "the second."));
  await expect(cardText(page, "m1")).toHaveText("The first half and the second.");
});

test("a tab for which no frames are drawn, as for a hidden one, has a title that is true", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Unseen" });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  // As when a tab is hidden after it asked for a frame and before it got one.
  await page.evaluate(() => (globalThis.requestAnimationFrame = () => 1));
  const running = await page.title();
  await producer.emit(run_id, { type: "run.waiting" });
  await expect(page).not.toHaveTitle(running);
});
