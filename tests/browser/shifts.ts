import type { Page } from "@playwright/test";

interface Shift {
  value: number;
  what: string[];
}

/** Keeps what moves on the pages that are opened from here on, other than after somebody's click or key. */
export async function watchShifts(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const seen: Shift[] = [];
    Object.assign(globalThis, { shifts: seen });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries() as (PerformanceEntry & {
        value: number;
        hadRecentInput: boolean;
        sources: { node: Node | null; previousRect: DOMRect; currentRect: DOMRect }[];
      })[]) {
        if (entry.hadRecentInput) continue;
        const what = entry.sources.map(({ node, previousRect, currentRect }) => {
          const element = node instanceof Element ? node : node?.parentElement;
          const name = element === null || element === undefined ? "?" : `${element.tagName}.${element.classList[0]}`;
          const place = ({ x, y, width }: DOMRect) => `${Math.round(x)},${Math.round(y)} ${Math.round(width)} wide`;
          return `${name} from ${place(previousRect)} to ${place(currentRect)}`;
        });
        seen.push({ value: entry.value, what });
      }
    }).observe({ type: "layout-shift", buffered: true });
  });
}

/** How much has moved on the page since it was opened, as the browser counts it, and what. */
export const shiftsOn = (page: Page): Promise<{ sum: number; what: string[] }> =>
  page.evaluate(async () => {
    for (let frames = 0; frames < 4; frames += 1) await new Promise((drawn) => requestAnimationFrame(drawn));
    const { shifts } = globalThis as unknown as { shifts: Shift[] };
    return {
      sum: shifts.reduce((sum, { value }) => sum + value, 0),
      what: shifts.flatMap(({ value, what }) => what.map((each) => `${value.toFixed(3)} ${each}`)),
    };
  });
