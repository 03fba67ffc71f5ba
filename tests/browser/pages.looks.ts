import { mkdir, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { violations } from "./axe.ts";
import { expect } from "./fixtures.ts";
import { known, looked } from "./looked.ts";
import { smaller } from "./png.ts";
import { test } from "./stock.ts";

test.use({ allowsStatus: [422] });

/** Those of the documentation, and all of them, which git does not keep. */
const documented = resolve(import.meta.dirname, "../../docs/screenshots");
const all = resolve(import.meta.dirname, "looks");
const documented_px = 1280;
/** A picture of the documentation has at most so many bytes. */
const documented_bytes_max = 120 * 1024;
const widths = [1440, documented_px, 1024, 390];

for (const scheme of ["light", "dark"] as const) {
  test(`every page is readable for everybody and within its screen, in the ${scheme} theme`, async ({
    page,
    server,
    producer,
  }) => {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    for (const folder of [documented, all]) await mkdir(folder, { recursive: true });
    const wrong: string[] = [];
    async function look(name: string, isShown: boolean): Promise<void> {
      for (const width of widths) {
        await page.setViewportSize({ width, height: width === documented_px ? 660 : width < 760 ? 844 : 900 });
        // What is drawn by its size has been drawn anew.
        await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
        if (width !== documented_px) await page.screenshot({ path: resolve(all, `${name}-${scheme}-${width}.png`) });
        else if (isShown) {
          const picture = smaller(await page.screenshot());
          if (picture.length > documented_bytes_max) wrong.push(`${name}: a picture of ${picture.length} bytes`);
          await writeFile(resolve(documented, `${name}-${scheme}.png`), picture);
        }
        const wider_px = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wider_px > 0) wrong.push(`${name} at ${width}: ${wider_px} px wider than its screen`);
        wrong.push(...(await violations(page)).map((each) => `${name} at ${width}: ${each}`));
      }
    }
    await page.goto(server.url);
    await expect(page.getByRole("heading", { name: "No runs yet" })).toBeVisible();
    await look("nothing", false);
    const runs = await known(producer);
    for (const { name, isShown = false, path, ready } of looked) {
      await page.setViewportSize({ width: documented_px, height: 800 });
      await page.goto(server.url + path(runs));
      await ready(page);
      await look(name, isShown);
    }
    expect(wrong).toEqual([]);
  });
}
