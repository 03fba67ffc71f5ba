import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import type { Page } from "@playwright/test";
import { violations } from "./axe.ts";
import { expect } from "./fixtures.ts";
import { stock, test } from "./stock.ts";

test.use({ allowsStatus: [422] });

const screenshots = resolve(import.meta.dirname, "../../docs/screenshots");
const schemes = ["light", "dark"] as const;
const widths = [1280, 390];

interface Looked {
  name: string;
  path: string;
  /** What is there when the page is complete. */
  ready: (page: Page) => Promise<void>;
}

const slow =
  "select name, count(*) as calls, round(max(duration_ms)) as longest_ms from tool_calls group by name order by 3 desc";

const pages: Looked[] = [
  {
    name: "sql",
    path: `/sql?q=${encodeURIComponent(slow)}`,
    ready: (page) => expect(page.locator("[data-rows]")).toHaveAttribute("data-rows", "4"),
  },
  {
    name: "",
    path: `/sql?q=${encodeURIComponent(slow)}&view=chart&side=examples`,
    ready: (page) => expect(page.getByRole("group", { name: "calls by name" })).toBeVisible(),
  },
  {
    name: "",
    path: "/sql?q=select+nope",
    ready: (page) => expect(page.getByRole("alert")).toContainText("nope"),
  },
  {
    name: "",
    path: "/threads",
    ready: (page) => expect(page.locator("[data-thread=weekend]")).toContainText("Anna"),
  },
  {
    name: "thread",
    path: "/threads/weekend",
    ready: (page) => expect(page.getByText("Both days are clear")).toBeVisible(),
  },
  {
    name: "",
    path: "/threads/weekend?tab=runs",
    ready: (page) => expect(page.locator("tr[data-run]")).toHaveCount(3),
  },
  {
    name: "checkpoint",
    path: "/threads/weekend?tab=checkpoints&checkpoint=1f0c0002",
    ready: (page) => expect(page.getByRole("button", { name: "Fork from here" })).toBeVisible(),
  },
  {
    name: "",
    path: "/sessions",
    ready: (page) => expect(page.locator("[data-session]")).toHaveCount(2),
  },
  {
    name: "session",
    path: "/sessions?tab=saved&name=weekend-2026",
    ready: (page) => expect(page.getByRole("button", { name: "Restore here" })).toBeVisible(),
  },
  {
    name: "artifacts",
    path: "/artifacts",
    ready: async (page) => {
      await expect(page.locator("[data-artifact]")).toHaveCount(5);
      await expect(page.locator("canvas")).toBeVisible();
      await expect(page.getByText("nothing failed")).toBeVisible();
    },
  },
  {
    name: "agents",
    path: "/agents",
    ready: (page) => expect(page.locator("[data-agent=nobody]")).toBeVisible(),
  },
  {
    name: "settings",
    path: "/settings",
    ready: (page) => expect(page.getByRole("region", { name: "About" })).toBeVisible(),
  },
  {
    name: "insights",
    path: "/insights?from=24h",
    ready: async (page) => {
      await expect(page.getByRole("group", { name: "Runs by hour" })).toBeVisible();
      await expect(page.getByText("Loading …")).toHaveCount(0);
    },
  },
];

for (const scheme of schemes) {
  test(`the pages of what was kept are readable for everybody in the ${scheme} theme`, async ({
    page,
    server,
    producer,
  }) => {
    test.setTimeout(180_000);
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await stock(producer);
    await mkdir(screenshots, { recursive: true });
    for (const { name, path, ready } of pages) {
      for (const width of widths) {
        await page.setViewportSize({ width, height: 800 });
        await page.goto(server.url + path);
        await ready(page);
        expect(await violations(page), `${path} at ${width}`).toEqual([]);
        const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        expect(wider, `${path} at ${width}`).toBeLessThanOrEqual(0);
        if (name !== "" && width === 1280)
          await page.screenshot({ path: resolve(screenshots, `${name}-${scheme}.png`) });
      }
    }
  });
}
