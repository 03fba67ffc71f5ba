import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";
import type { NewEvent, Producer } from "./producer.ts";

const tool = (verb: "started" | "completed" | "failed", span_id: string, name: string, more: object): NewEvent => ({
  type: `tool.${verb}`,
  span_id,
  payload: { name, ...more },
});

/** A trip that was planned; `isLater` in another way. */
async function trip(producer: Producer, isLater: boolean): Promise<string> {
  const input = { city: "Lisbon", days: isLater ? 3 : 2 };
  // Times of its own: how long a request takes is no difference of the runs.
  const at = new Date(Date.now() - (isLater ? 60_000 : 120_000)).toISOString();
  const run_id = await producer.createRun({ title: isLater ? "Second" : "First", agent: "planner", input, at });
  const text = `Fly on ${isLater ? "Sunday" : "Saturday"}`;
  const usage = { input_tokens: isLater ? 300 : 200, output_tokens: 10 };
  const error = { message: "503" };
  const events = [
    tool("started", "a", "flights", { args: { to: "LIS", seat: isLater ? "aisle" : "window" } }),
    isLater
      ? tool("completed", "a", "flights", { result: 131, duration_ms: 400 })
      : tool("failed", "a", "flights", { error, duration_ms: 900 }),
    ...(isLater ? [tool("started", "h", "hotels", {}), tool("completed", "h", "hotels", { result: 3 })] : []),
    tool("started", "p", "pay", {}),
    tool("completed", "p", "pay", { result: "ok" }),
    { type: "message.completed", span_id: `m-${run_id}`, payload: { content: text, model: "gpt-4o", usage } },
    { type: "run.completed", payload: { output: { text } } },
  ];
  await producer.emit(run_id, ...events.map((event) => ({ ...event, at })));
  return run_id;
}

test("two runs that were selected are compared step by step, and each step leads into its run", async ({
  page,
  server,
  producer,
}) => {
  const [a, b] = [await trip(producer, false), await trip(producer, true)];
  await page.goto(server.url);
  await expect(page.locator("[data-run]")).toHaveCount(2);
  await expectState(page, "live");
  // The older one first: what is selected first is A.
  for (const key of ["j", "j", "x", "k", "x"]) await page.keyboard.press(key);
  await expect(page.getByText("2 selected")).toBeVisible();
  expect(await violations(page)).toEqual([]);
  await page.keyboard.press("c");
  await expect(page).toHaveURL(`${server.url}/compare?a=${a}&b=${b}`);
  await expect(page).toHaveTitle("First and Second · Runreel");
  // What was selected still is, for who comes back to choose another.
  await page.goBack();
  await expect(page.getByText("2 selected")).toBeVisible();
  await page.goForward();

  const figures = page.getByRole("region", { name: "In figures" });
  await expect(figures.getByRole("row", { name: /^tokens in/ })).toContainText("200300+100 (+50 %)");
  await expect(figures.getByRole("row", { name: /^failed steps/ })).toContainText("−1");
  await expect(figures.locator("del")).toHaveText("Saturday");
  await expect(figures.locator("ins")).toHaveText("Sunday");
  const steps = page.getByRole("region", { name: "Steps" });
  const step = (name: RegExp) => steps.getByRole("row", { name });
  await expect(steps.locator("[data-step]")).toHaveCount(5);
  await expect(step(/flights/)).toContainText("failed → completed");
  await expect(step(/flights/)).toContainText("−500 ms (−56 %)");
  await expect(step(/hotels/)).toContainText("only in B");
  // They have no names, and are the same step all the same.
  await expect(step(/message/)).toContainText("+100");
  await step(/flights/)
    .getByRole("button")
    .click();
  await expect(steps.locator(".detail")).toContainText("window");
  await expect(steps.locator(".detail")).toContainText("aisle");
  await expect(steps.locator(".detail")).not.toContainText("LIS");
  await steps.getByRole("button", { name: "1 the same" }).click();
  await expect(steps.locator(".detail")).toContainText("LIS");
  expect(await violations(page)).toEqual([]);

  await page.getByRole("button", { name: "Only steps that differ" }).click();
  // The whole run and what it says differ as well.
  await expect(steps.locator("[data-step]")).toHaveCount(4);
  await page.keyboard.press("n");
  await page.keyboard.press("n");
  await expect(step(/flights/).getByRole("button")).toBeFocused();
  await page.reload();
  await expect(steps.locator("[data-step]")).toHaveCount(4);
  await step(/hotels/)
    .getByRole("link")
    .click();
  await expect(page).toHaveURL(`${server.url}/runs/${b}?sel=5`);
  await expect(page.getByRole("complementary")).toContainText("hotels");
  await page.goBack();
  await expect(steps.locator("[data-step]")).toHaveCount(4);
  await page.getByRole("button", { name: "Swap A and B" }).click();
  await expect(step(/hotels/)).toContainText("only in A");
});

test("without two runs they are chosen from those that there are", async ({ page, server, producer }) => {
  const [a, b] = [await trip(producer, false), await trip(producer, true)];
  await page.goto(`${server.url}/compare`);
  const first = page.locator(".picker").filter({ has: page.getByLabel("Run A") });
  await first.getByRole("button", { name: "First" }).click();
  await expect(page.getByLabel("Run A")).toHaveCount(0);
  // A run is not compared with itself.
  await expect(page.getByRole("button", { name: "Second" })).toBeVisible();
  await expect(page.getByRole("button", { name: "First" })).toHaveCount(0);
  expect(await violations(page)).toEqual([]);
  await page.getByRole("button", { name: "Second" }).click();
  await expect(page).toHaveURL(`${server.url}/compare?a=${a}&b=${b}`);
  await expect(page.locator("[data-step]")).toHaveCount(5);
});

test.describe("with a run that is gone", () => {
  test.use({ allowsStatus: [404] });

  test("the page says which of the two there is not", async ({ page, server, producer }) => {
    const a = await trip(producer, false);
    await page.goto(`${server.url}/compare?a=${a}&b=01a20078-18af-7545-b69e-87c0ab9f3405`);
    await expect(page.getByRole("alert")).toContainText("Run B");
    await page.getByRole("button", { name: "Choose another" }).click();
    await expect(page.getByLabel("Run B")).toBeVisible();
  });
});

test("names and texts that are markup are shown as they are, in the list, the look at a run and the comparison", async ({
  page,
  server,
  producer,
}) => {
  const markup = `<img src=x onerror="document.title='run'"><script>document.title='run'</script>`;
  const ids: string[] = [];
  for (const n of [1, 2]) {
    const title = `${n} ${markup}`;
    const run_id = await producer.createRun({
      title,
      agent: `a ${markup}`,
      tags: [`t ${markup}`],
      input: { [title]: title },
    });
    await producer.emit(
      run_id,
      { type: "tool.started", span_id: "t", payload: { name: markup, args: { [title]: title } } },
      { type: "tool.failed", span_id: "t", payload: { name: markup, error: { message: title } } },
      { type: "run.failed", payload: { error: { message: title } } },
    );
    ids.push(run_id);
  }
  const expectText = async () => {
    await expect(page.locator("main").getByText(markup).first()).toBeVisible();
    await expect(page.locator("main img, main script")).toHaveCount(0);
  };
  await page.goto(`${server.url}/?peek=${ids[0]}`);
  await expect(page.getByRole("complementary").getByText("Last events")).toBeVisible();
  await expectText();
  await page.goto(`${server.url}/compare?a=${ids[0]}&b=${ids[1]}`);
  await page.locator("[data-step] button").nth(1).click();
  await expect(page.locator(".detail del").first()).toBeVisible();
  await expectText();
});
