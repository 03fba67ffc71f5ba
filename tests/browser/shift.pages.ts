import { expect } from "./fixtures.ts";
import { known, looked } from "./looked.ts";
import { shiftsOn, watchShifts } from "./shifts.ts";
import { test } from "./stock.ts";

test.use({ allowsStatus: [422] });

/** What is below it is not seen as a jump. */
const shift_max = 0.05;

test("nothing that is drawn moves while a page is opened", async ({ page, server, producer }) => {
  test.setTimeout(300_000);
  await watchShifts(page);
  const runs = await known(producer);
  const moved: string[] = [];
  for (const { name, path, ready } of looked) {
    await page.goto(server.url + path(runs));
    await ready(page);
    const { sum, what } = await shiftsOn(page);
    if (sum > shift_max) moved.push(`${name}: ${sum.toFixed(3)}: ${what.join("; ")}`);
  }
  expect(moved).toEqual([]);
});
