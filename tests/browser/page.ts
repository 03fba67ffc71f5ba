import { expect, type Page, type TestInfo } from "@playwright/test";

/** The connection pill's state. */
export async function expectState(page: Page, state: string | RegExp): Promise<void> {
  await expect(page.locator("[data-state]")).toHaveAttribute("data-state", state);
}

/** All rows of a long run take a development build some time. */
export async function expectEvents(page: Page, count: number, timeout = 15_000): Promise<void> {
  const shown = page.locator("[data-event-count]");
  await expect(shown).toHaveAttribute("data-event-count", String(count), { timeout });
}

/** How many runs the list has; it draws those that are seen. */
export async function expectRuns(page: Page, count: number): Promise<void> {
  await expect(page.getByRole("table")).toHaveAttribute("aria-rowcount", String(count + 1));
}

/**
 * A browser has six connections to a server: who waits for one of them is the seventh tab and every one after it. Half of
 * those were live within two seconds or, on a machine that is busy with other things, twice what the first six took. The
 * slowest may take twice as long on such a machine, and never more than eight.
 */
export function expectPrompt(took_ms: number[], info: TestInfo): void {
  const [first, later] = [median(took_ms.slice(0, 6)), median(took_ms.slice(6))];
  const description = `${took_ms.at(-1)} ms, the first six ${first} ms, those after them ${later} ms`;
  info.annotations.push({ type: "last tab live after", description });
  expect(later).toBeLessThanOrEqual(Math.max(2_000, 2 * first));
  expect(Math.max(...took_ms.slice(6))).toBeLessThanOrEqual(Math.min(Math.max(2_000, 4 * first), 8_000));
}

const median = (of: number[]): number => of.toSorted((a, b) => a - b)[Math.floor(of.length / 2)]!;

/** Reads every row of the log by scrolling through it: the seqs in the order they stand, one per row. */
export async function seqsInList(page: Page): Promise<number[]> {
  return page.getByRole("grid", { name: "Events of the run" }).evaluate(async (grid) => {
    const frame = () => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
    const byRow = new Map<number, number[]>();
    for (let top = 0; ; top += Math.floor(grid.clientHeight / 2)) {
      grid.scrollTop = top;
      await frame();
      for (const row of grid.querySelectorAll("[data-seq]")) {
        const at = Number(row.getAttribute("aria-rowindex"));
        const seq = Number(row.getAttribute("data-seq"));
        const seen = byRow.get(at) ?? [];
        if (!seen.includes(seq)) seen.push(seq);
        byRow.set(at, seen);
      }
      if (top + grid.clientHeight >= grid.scrollHeight) break;
    }
    return [...byRow.entries()].sort(([a], [b]) => a - b).flatMap(([, seqs]) => seqs);
  });
}

export const upTo = (last: number): number[] => Array.from({ length: last }, (_, at) => at + 1);

export const cardText = (page: Page, span: string) => page.locator(`article[data-span="${span}"] .text`);
