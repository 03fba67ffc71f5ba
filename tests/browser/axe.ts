import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { Page } from "@playwright/test";

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Rule and node of every violation of WCAG 2 A and AA. */
export async function violations(page: Page): Promise<string[]> {
  // Through the debugger's door, which the page's own policy does not govern.
  await page.evaluate(axe);
  return page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run: (options: unknown) => Promise<Results> } };
    interface Results {
      violations: { id: string; nodes: { html: string; failureSummary: string }[] }[];
    }
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
    const results = await axe.run({ runOnly: { type: "tag", values: tags } });
    return results.violations.flatMap((each) =>
      each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`),
    );
  });
}
