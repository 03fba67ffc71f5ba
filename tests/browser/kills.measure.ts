import { expect, test } from "./fixtures.ts";
import { expectEvents, expectState, seqsInList, upTo } from "./page.ts";

const kills = 20;
const line = (n: number) => ({ type: "log.info", payload: { message: `line ${n}` } });

test.use({ allowsCuts: true });

test("an open page through twenty kills of the server", async ({ page, server, producer }) => {
  test.setTimeout(600_000);
  const run_id = await producer.createRun({ title: "Killed run" });
  let { last_seq: last } = await producer.emit(run_id, ...upTo(500).map(line));
  await page.goto(`${server.url}/runs/${run_id}?tab=log`);
  await expectState(page, "live");
  await expectEvents(page, last);
  // Somebody reads in the middle, and does not follow.
  const list = page.getByRole("grid", { name: "Events of the run" });
  const seq = await list.evaluate(async (grid) => {
    grid.scrollTop = grid.scrollHeight / 2;
    // The rows of the middle are there two frames later.
    for (let n = 0; n < 2; n += 1) await new Promise(requestAnimationFrame);
    const top = grid.getBoundingClientRect().top + 80;
    const rows = [...grid.querySelectorAll("[data-seq]")];
    return rows.find((row) => row.getBoundingClientRect().top > top)?.getAttribute("data-seq") ?? "";
  });
  const place = () => page.locator(`[data-seq="${seq}"]`).evaluate((row) => row.getBoundingClientRect().top);
  const before = await place();
  let jump_px = 0;
  let away_ms = 0;
  for (const kill of upTo(kills)) {
    await server.kill();
    await expectState(page, "reconnecting");
    await server.up();
    const up_ms = Date.now();
    ({ last_seq: last } = await producer.emit(run_id, ...upTo(20).map((n) => line(500 + kill * 20 + n))));
    await expectState(page, "live");
    await expectEvents(page, last);
    away_ms = Math.max(away_ms, Date.now() - up_ms);
    jump_px = Math.max(jump_px, Math.abs((await place()) - before));
  }
  ({ last_seq: last } = await producer.emit(run_id, { type: "run.completed" }));
  await expectState(page, "ended");
  const seen = await seqsInList(page);
  const lost = upTo(last).filter((each) => !seen.includes(each)).length;
  const doubled = seen.length - new Set(seen).size;
  console.log(`${kills} kills: ${lost} lost, ${doubled} doubled, ${jump_px} px jump, live again after at most ${away_ms} ms`);
  expect([lost, doubled, jump_px]).toEqual([0, 0, 0]);
});
