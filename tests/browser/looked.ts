/** The pages and what they can show, and what has to be in the log for it. */

import { expect, type Page } from "@playwright/test";
import { expectState } from "./page.ts";
import type { NewEvent, Producer } from "./producer.ts";
import { stock } from "./stock.ts";
import { tripRun } from "./trip.ts";

/** The runs that a page is about. */
export interface Known {
  trip: string;
  /** The same, not at its end. */
  going: string;
  failed: string;
  asking: string;
  /** It has workers. */
  supervisor: string;
  session: string;
}

export interface Looked {
  name: string;
  /** Its picture is one of the documentation. */
  isShown?: boolean;
  path: (known: Known) => string;
  /** Waits for what is there when it is complete; for some, after a click or two. */
  ready: (page: Page) => Promise<unknown>;
}

const asked = (span_id: string, payload: Record<string, unknown>): NewEvent => ({
  type: "interrupt.requested",
  span_id,
  payload: { expires_at: new Date(Date.now() + 3_600_000).toISOString(), ...payload },
});

export async function known(producer: Producer): Promise<Known> {
  await stock(producer);
  const going = await tripRun(producer, false);
  const failed = await producer.createRun({ title: "Import the catalogue", agent: "importer", tags: ["nightly"] });
  await producer.emit(
    failed,
    { type: "tool.started", span_id: "t1", payload: { name: "read_file", args: { path: "catalogue.csv" } } },
    { type: "tool.failed", span_id: "t1", payload: { name: "read_file", error: { message: "no such file" } } },
    { type: "run.failed", payload: { error: { message: "read_file gave up after 3 tries: no such file" } } },
  );
  const asking = await producer.createRun({ title: "Delete old branches", agent: "janitor", thread_id: "weekly" });
  await producer.emit(
    asking,
    { type: "step.started", span_id: "s1", payload: { name: "look for branches" } },
    { type: "step.completed", span_id: "s1" },
    asked("i1", {
      kind: "approval",
      prompt: "Delete the branches nobody has touched for a year?",
      args: { branches: ["old/a", "old/b"], force: false },
      allowed_decisions: ["approve", "edit", "reject"],
    }),
    asked("i2", { kind: "question", prompt: "Which of them should stay?", options: ["old/a", "old/b", "none"] }),
    { type: "run.interrupted", payload: { reason: "approval" } },
  );
  const supervisor = await producer.createRun({ title: "Review the month", agent: "reviewer", role: "supervisor" });
  for (const title of ["Read the ledger", "Read the mail", "Draft the letter"]) {
    const worker = await producer.createRun({ title, agent: "reader", role: "worker", parent_run_id: supervisor });
    await producer.emit(
      supervisor,
      { type: "worker.spawned", span_id: worker, payload: { run_id: worker, name: title } },
      { type: "worker.completed", span_id: worker, payload: { run_id: worker, name: title, duration_ms: 5 } },
    );
    await producer.emit(worker, { type: "run.completed", payload: { output: `${title}: done` } });
  }
  const answer = Array.from({ length: 12 }, (_, n) => `- the account ${n} is in order`).join("\n");
  await producer.emit(
    supervisor,
    { type: "message.completed", span_id: "m1", payload: { role: "assistant", content: `# All is well\n\n${answer}` } },
    { type: "run.completed" },
  );
  const response = await fetch(`${producer.url()}/api/sessions`);
  const { sessions } = (await response.json()) as { sessions: { session_id: string }[] };
  return { trip: await tripRun(producer, true), going, failed, asking, supervisor, session: sessions[0]?.session_id ?? "" };
}

const sql = (query: string, rest = "") => `/sql?q=${encodeURIComponent(query)}${rest}`;
/** The query of a link is run by its reader. */
const runIt = (page: Page) => page.getByRole("button", { name: "Run", exact: true }).click();
const slow =
  "select name, count(*) as calls, round(max(duration_ms)) as longest_ms from tool_calls group by name order by 3 desc";

const heading = (page: Page, name: string) => expect(page.getByRole("heading", { name, level: 1 })).toBeVisible();
const ended = (page: Page) => expectState(page, "ended");

async function runs(page: Page): Promise<void> {
  await expectState(page, "live");
  await expect(page.locator("[data-run]").first()).toBeVisible();
  await expect(page.getByRole("group", { name: "Status" })).toContainText(/failed\s*\d/);
}

const tab = (name: string): Looked => ({
  name: `run-${name.toLowerCase()}`,
  path: ({ trip }) => `/runs/${trip}`,
  ready: async (page) => {
    await ended(page);
    await page.getByRole("tab", { name }).click();
    await expect(page.getByRole("tab", { name })).toHaveAttribute("aria-selected", "true");
  },
});

export const looked: readonly Looked[] = [
  { name: "runs", isShown: true, path: () => "/", ready: runs },
  { name: "runs-found", path: () => "/?q=lisbon", ready: (page) => expect(page.locator("mark").first()).toBeVisible() },
  { name: "runs-none", path: () => "/?agent=somebody", ready: (page) => page.getByText("No run matches.").waitFor() },
  {
    name: "runs-peek",
    path: ({ failed }) => `/?peek=${failed}`,
    ready: async (page) => {
      await runs(page);
      await expect(page.getByRole("complementary", { name: "A look at the run" })).toContainText("run.failed");
    },
  },
  {
    name: "runs-columns",
    path: () => "/",
    ready: async (page) => {
      await runs(page);
      await page.getByRole("button", { name: "Columns" }).click();
    },
  },
  {
    name: "run",
    isShown: true,
    path: ({ trip }) => `/runs/${trip}`,
    ready: async (page) => {
      await ended(page);
      await page.getByRole("treegrid").getByRole("row").filter({ hasText: "weather" }).click();
      await expect(page.getByRole("complementary")).toContainText("Lisbon");
    },
  },
  { name: "run-going", path: ({ going }) => `/runs/${going}`, ready: (page) => expectState(page, "live") },
  {
    name: "run-failed",
    path: ({ failed }) => `/runs/${failed}?fold=1`,
    ready: async (page) => {
      await ended(page);
      await expect(page.getByRole("region", { name: "Why it failed" })).toContainText("gave up");
    },
  },
  {
    name: "run-asking",
    path: ({ asking }) => `/runs/${asking}`,
    ready: (page) => expect(page.locator("[data-interrupt]")).toHaveCount(2),
  },
  {
    name: "run-supervisor",
    path: ({ supervisor }) => `/runs/${supervisor}`,
    ready: async (page) => {
      await ended(page);
      await expect(page.getByRole("navigation", { name: "Related runs" }).getByRole("link")).toHaveCount(3);
      await expect(page.getByRole("region", { name: "The answer" })).toContainText("All is well");
    },
  },
  {
    name: "run-replay",
    path: ({ trip }) => `/runs/${trip}?at=9&zoom=0-6000`,
    ready: (page) => expect(page.getByRole("slider")).toBeVisible(),
  },
  ...["Log", "Conversation", "Artifacts", "State", "JSON"].map(tab),
  {
    name: "run-share",
    path: ({ trip }) => `/runs/${trip}`,
    ready: async (page) => {
      await ended(page);
      await page.getByRole("button", { name: "Share" }).click();
      await expect(page.getByRole("dialog")).toBeVisible();
    },
  },
  {
    name: "compare",
    isShown: true,
    path: ({ trip, going }) => `/compare?a=${trip}&b=${going}`,
    ready: async (page) => {
      await expect(page.locator("[data-step]")).toHaveCount(8);
      await page.getByRole("button", { name: "search_flights tool" }).first().click();
      await expect(page.locator(".detail")).toContainText("airline");
    },
  },
  { name: "compare-none", path: () => "/compare", ready: (page) => expect(page.getByLabel("Run A")).toBeVisible() },
  {
    name: "threads",
    path: () => "/threads",
    ready: (page) => expect(page.locator("[data-thread=weekend]")).toContainText("Anna"),
  },
  {
    name: "thread",
    isShown: true,
    path: () => "/threads/weekend",
    ready: (page) => expect(page.getByText("Both days are clear")).toBeVisible(),
  },
  {
    name: "thread-runs",
    path: () => "/threads/weekend?tab=runs",
    ready: (page) => expect(page.locator("tr[data-run]")).toHaveCount(3),
  },
  {
    name: "checkpoint",
    isShown: true,
    path: () => "/threads/weekend?tab=checkpoints&checkpoint=1f0c0002",
    ready: (page) => expect(page.getByRole("button", { name: "Fork from here" })).toBeVisible(),
  },
  {
    name: "inbox",
    isShown: true,
    path: () => "/inbox",
    ready: async (page) => {
      await expectState(page, "live");
      await expect(page.locator("[data-card]")).toHaveCount(2);
    },
  },
  {
    name: "sessions",
    path: () => "/sessions",
    ready: (page) => expect(page.locator("[data-session]")).toHaveCount(2),
  },
  {
    name: "session",
    path: ({ session }) => `/sessions/${session}`,
    ready: (page) => expect(page.getByText("Is anybody there?").first()).toBeVisible(),
  },
  {
    name: "saved-session",
    isShown: true,
    path: () => "/sessions?tab=saved&name=weekend-2026",
    ready: (page) => expect(page.getByRole("button", { name: "Restore here" })).toBeVisible(),
  },
  {
    name: "artifacts",
    isShown: true,
    path: () => "/artifacts",
    ready: async (page) => {
      await expect(page.locator("[data-artifact]")).toHaveCount(5);
      await expect(page.locator("canvas")).toBeVisible();
      await expect(page.getByText("nothing failed")).toBeVisible();
    },
  },
  {
    name: "sql",
    isShown: true,
    path: () => sql(slow),
    ready: async (page) => {
      await runIt(page);
      await expect(page.locator("[data-rows]")).toHaveAttribute("data-rows", "5");
    },
  },
  {
    name: "sql-chart",
    path: () => sql(slow, "&view=chart&side=examples"),
    ready: async (page) => {
      await runIt(page);
      await expect(page.getByRole("group", { name: "calls by name" })).toBeVisible();
    },
  },
  {
    name: "sql-error",
    path: () => sql("select nope"),
    ready: async (page) => {
      await runIt(page);
      await expect(page.getByRole("alert")).toContainText("nope");
    },
  },
  {
    name: "insights",
    isShown: true,
    path: () => "/insights?from=24h",
    ready: async (page) => {
      await expect(page.getByRole("group", { name: "Runs by hour" })).toBeVisible();
      await expect(page.getByText("Loading …")).toHaveCount(0);
    },
  },
  {
    name: "agents",
    isShown: true,
    path: () => "/agents",
    ready: (page) => expect(page.locator("[data-agent=nobody]")).toBeVisible(),
  },
  {
    name: "settings",
    isShown: true,
    path: () => "/settings",
    ready: (page) => expect(page.getByRole("region", { name: "About" })).toBeVisible(),
  },
  {
    name: "tokens",
    path: () => "/tokens",
    ready: async (page) => {
      await page.getByRole("button", { name: "New token" }).click();
      await page.getByLabel("Name").fill("reports");
      await page.getByRole("button", { name: "Create" }).click();
      await page.getByRole("button", { name: "Revoke reports" }).first().click();
    },
  },
  {
    name: "keys",
    path: () => "/settings",
    ready: async (page) => {
      await heading(page, "Settings");
      await page.keyboard.press("?");
      await expect(page.getByRole("dialog")).toBeVisible();
    },
  },
  {
    name: "palette",
    path: () => "/settings",
    ready: async (page) => {
      await heading(page, "Settings");
      await page.keyboard.press("Control+k");
      await expect(page.getByRole("combobox", { name: "Pages, runs and commands" })).toBeFocused();
      await page.keyboard.type("plan");
      await expect(page.getByRole("option", { name: /Plan a weekend/ }).first()).toBeVisible();
    },
  },
];
