import type { Browser, Locator, Page } from "@playwright/test";
import { expect, test as base } from "./fixtures.ts";
import { Producer, type NewEvent } from "./producer.ts";
import { Server, startAndStop_ms } from "./server.ts";
import { secret, signed } from "./signed.ts";
import { tripRun } from "./trip.ts";

const bearer = signed("alice");

/** Everybody signs in here; Alice has. */
const test = base.extend({
  server: [
    async ({ made }, use) => {
      const server = await Server.start(made, { flags: ["--auth", "jwt"], env: { RUNREEL_JWT_SECRET: secret } });
      try {
        await use(server);
        await server.stop();
      } finally {
        await server.remove();
      }
    },
    { scope: "test", timeout: startAndStop_ms },
  ],
  producer: async ({ server }, use) => use(new Producer(() => server.url, bearer)),
});

/** A hand that counts what it does. */
class Hand {
  clicks = 0;
  keys = 0;
  readonly #began_ms = Date.now();

  constructor(readonly page: Page) {}

  async click(target: Locator): Promise<void> {
    this.clicks += 1;
    await target.click();
  }

  async press(key: string): Promise<void> {
    this.keys += 1;
    await this.page.keyboard.press(key);
  }

  async type(text: string): Promise<void> {
    this.keys += text.length;
    await this.page.keyboard.type(text);
  }

  get took_ms(): number {
    return Date.now() - this.#began_ms;
  }
}

interface Task {
  name: string;
  act: (hand: Hand, page: Page, browser: Browser) => Promise<void>;
}

const row = (page: Page, title: string) => page.locator("[data-run]").filter({ hasText: title });
const named = (page: Page, name: string) => page.getByRole("link", { name, exact: true });
const tool = (id: string, verb: string, payload: Record<string, unknown>, at?: string): NewEvent => ({
  type: `tool.${verb}`,
  span_id: id,
  payload,
  ...(at !== undefined && { at }),
});

/** Sixty runs of the last hours, and among them those that somebody has questions about. */
async function fill(producer: Producer): Promise<void> {
  for (let n = 0; n < 60; n += 1) {
    const start_ms = Date.now() - 3_600_000 - n * 600_000;
    const at = (ms: number) => new Date(start_ms + ms).toISOString();
    const run_id = await producer.createRun({ title: `Nightly report ${n}`, agent: "reporter", at: at(0) });
    await producer.emit(
      run_id,
      tool("c1", "started", { name: "fetch" }, at(100)),
      tool("c1", "completed", { name: "fetch", result: "ok" }, at(300 + n)),
      tool("c2", "started", { name: "render_pdf" }, at(400)),
      tool("c2", "completed", { name: "render_pdf", result: "ok" }, at(7_000 + n)),
      { type: "run.completed", at: at(9_000) },
    );
  }
  const failed = await producer.createRun({ title: "Import the catalogue", agent: "importer" });
  await producer.emit(
    failed,
    tool("t1", "started", { name: "read_file", args: { path: "catalogue.csv" } }),
    tool("t1", "failed", { name: "read_file", error: { message: "catalogue.csv: no such file" } }),
    { type: "run.failed", payload: { error: { message: "read_file gave up after 3 tries" } } },
  );
  const costly = await producer.createRun({ title: "Translate the manual", agent: "translator" });
  // 100 000 × $2.50 and 20 000 × $10 a million.
  const usage = { input_tokens: 100_000, output_tokens: 20_000 };
  await producer.emit(
    costly,
    {
      type: "message.completed",
      span_id: "m1",
      payload: { role: "assistant", content: "Fertig.", model: "gpt-4o", usage },
    },
    { type: "run.completed" },
  );
  const asking = await producer.createRun({ title: "Delete old branches", agent: "janitor" });
  await producer.emit(
    asking,
    {
      type: "interrupt.requested",
      span_id: "i1",
      payload: {
        kind: "approval",
        prompt: "Delete these branches?",
        args: { older_than_days: 30 },
        allowed_decisions: ["approve", "edit", "reject"],
      },
    },
    { type: "run.interrupted" },
  );
  await tripRun(producer, false);
  await tripRun(producer, true);
  const rare = await producer.createRun({ title: "Send invoices", agent: "clerk" });
  await producer.emit(
    rare,
    tool("t1", "started", { name: "send", args: { to: "quetzalcoatlus@example.org" } }),
    tool("t1", "completed", { name: "send", result: { id: 4_711 } }),
    { type: "run.completed" },
  );
  const indexed = async () => {
    const headers = { authorization: `Bearer ${bearer}` };
    const response = await fetch(`${producer.url()}/api/runs?q=quetzalcoatlus`, { headers });
    return ((await response.json()) as { runs: unknown[] }).runs.length;
  };
  await expect.poll(indexed).toBe(1);
}

const tasks: Task[] = [
  {
    name: "why did a run fail",
    act: async (hand, page) => {
      await hand.click(page.getByRole("group", { name: "Status" }).getByRole("button", { name: "failed" }));
      await expect(page.locator("[data-run]")).toHaveCount(1);
      await hand.click(named(page, "Import the catalogue"));
      await expect(page.getByRole("region", { name: "Why it failed" })).toContainText("gave up after 3 tries");
      await hand.click(page.getByRole("treegrid").getByRole("row", { name: /tool read_file/ }));
      await expect(page.getByRole("complementary")).toContainText("catalogue.csv: no such file");
    },
  },
  {
    name: "what did a run cost, and which call",
    act: async (hand, page) => {
      await hand.click(named(page, "Translate the manual"));
      await expect(page.locator("header [data-cost]")).toHaveText("$0.45");
      await hand.click(page.getByRole("treegrid").getByRole("row", { name: /message Fertig/ }));
      const spent = page.getByRole("complementary").getByRole("region", { name: "Tokens and cost" });
      await expect(spent).toContainText("gpt-4o");
      await expect(spent).toContainText("$0.45");
    },
  },
  {
    name: "share it with a colleague who has no token",
    act: async (hand, page, browser) => {
      await hand.click(named(page, "Import the catalogue"));
      await hand.click(page.getByRole("button", { name: "Share" }));
      await hand.click(page.getByRole("button", { name: "Make a link" }));
      await hand.click(page.getByRole("dialog").getByRole("button", { name: "Copy" }));
      const link = await page.evaluate(() => navigator.clipboard.readText());
      const other = await (await browser.newContext()).newPage();
      await other.goto(link);
      await expect(other.getByRole("region", { name: "Why it failed" })).toContainText("gave up after 3 tries");
      await other.context().close();
    },
  },
  {
    name: "which tool is the slowest",
    act: async (hand, page) => {
      await hand.click(page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Insights" }));
      const slowest = page.getByRole("region", { name: "The slowest tools", exact: true });
      await expect(slowest.locator("tbody tr").first()).toContainText("render_pdf");
    },
  },
  {
    name: "approve what a run asks, with other arguments",
    act: async (hand, page) => {
      await hand.click(page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Inbox" }));
      await hand.click(page.getByRole("button", { name: "Edit the arguments" }));
      await expect(page.getByLabel("Arguments")).toBeFocused();
      await hand.press("Control+a");
      await hand.type('{"older_than_days": 365}');
      await hand.click(page.getByRole("button", { name: "Approve" }));
      await expect(page.getByText("No run waits for a person.")).toBeVisible();
    },
  },
  {
    name: "compare two runs",
    act: async (hand, page) => {
      for (const at of [0, 1])
        await hand.click(row(page, "Plan a weekend in Lisbon").nth(at).getByRole("checkbox"));
      await hand.click(page.getByRole("link", { name: "Compare c" }));
      const steps = page.getByRole("region", { name: "Steps" });
      await expect(steps.getByRole("row", { name: /write/ })).toContainText("completed → running");
    },
  },
  {
    name: "find the run with a rare word in a payload",
    act: async (hand, page) => {
      await hand.click(page.getByLabel("Search runs"));
      await hand.type("quetzalcoatlus");
      await expect(row(page, "Send invoices").locator("mark")).toHaveText("quetzalcoatlus");
      await hand.click(row(page, "Send invoices").getByRole("link", { name: /tool\.started/ }));
      await expect(page.getByRole("complementary")).toContainText("quetzalcoatlus@example.org");
    },
  },
];

test("seven tasks by clicking only", async ({ page, context, browser, server, producer }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.addInitScript((token) => localStorage.setItem("runreel.token", token), bearer);
  await fill(producer);
  const print = (cells: (string | number)[]) =>
    console.log(cells.map((cell, at) => String(cell)[at === 0 ? "padEnd" : "padStart"](at === 0 ? 48 : 8)).join(" "));
  print(["task", "clicks", "keys", "ms"]);
  for (const { name, act } of tasks) {
    await page.goto(server.url);
    await expect(page.locator("[data-run]").first()).toBeVisible();
    const hand = new Hand(page);
    await act(hand, page, browser);
    print([name, hand.clicks, hand.keys, hand.took_ms]);
  }
});
