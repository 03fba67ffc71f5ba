import { execFile, spawn } from "node:child_process";
import { mkdir, readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import type { Locator, Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import { python } from "./programs.ts";
import { binary } from "./server.ts";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const folder = resolve(import.meta.dirname, "../met/exceptions");
const looks = resolve(import.meta.dirname, "looks/exceptions");

/** As a reader sees it in one line: without what a terminal would take for a colour. */
const line = (text: string) => text.replace(/\u001b?\[\d+m/g, "").replace(/\p{Cc}+/gu, " ").replace(/ +/g, " ").trim();

/** The pictures of one exception: the banner, the event that it was, its row in the list, and what two commands print. */
async function look(page: Page, url: string, [name, run_id]: [string, string], expected: string): Promise<void> {
  const picture = (of: string, shown: Page | Locator = page) =>
    shown.screenshot({ path: resolve(looks, `${name.replaceAll(" ", "-")}-${of}.png`) });
  const told = line(expected.replace("…", ""));
  const says = (shown: Locator, what: string) =>
    expect.poll(async () => line((await shown.textContent()) ?? "")).toContain(what);
  const first = expected.split("\n")[0]?.replace("…", "") ?? "";

  await page.goto(`${url}/runs/${run_id}`);
  const why = page.getByRole("region", { name: "Why it failed" });
  await says(why, told);
  await picture("banner");
  await why.getByRole("button", { name: /^Show event/ }).click();
  const detail = page.getByRole("complementary");
  // Its type is a heading there, and what it says stands below.
  for (const part of told.split(/^([\w.]+): /).filter(Boolean)) await says(detail, part);
  await picture("detail");

  // Rows out of sight are not drawn.
  await page.setViewportSize({ width: 1280, height: 2_000 });
  await page.goto(`${url}/?status=failed`);
  const row = page.locator(`[data-run="${run_id}"]`);
  await expect.poll(async () => line((await row.locator(".line").textContent()) ?? "")).toContain(line(first));
  await picture("list", row);
  await page.setViewportSize({ width: 1280, height: 800 });

  const env = { ...process.env, RUNREEL_URL: url, NO_COLOR: "1" };
  const printed = await Promise.all(
    [
      ["tail", "--stacks", run_id],
      ["runs", "show", run_id],
    ].map(async (words) => `$ runreel ${words.join(" ")}\n${(await run(binary, words, { env })).stdout}`),
  );
  for (const text of printed) expect(line(text)).toContain(line(first));
  await page.goto("about:blank");
  await page.setContent("<pre style='font: 12px monospace; white-space: pre-wrap'></pre>");
  await page.locator("pre").evaluate((pre, text) => (pre.textContent = text), printed.join("\n"));
  await picture("commands", page.locator("pre"));
}

test("each exception is shown as what it is: in the banner, the details, the list and the terminal", async ({
  page,
  server,
}) => {
  test.setTimeout(600_000);
  await mkdir(looks, { recursive: true });
  const table = JSON.parse(await readFile(resolve(folder, "table.json"), "utf8")) as Record<string, string>;
  const client = pathToFileURL(resolve(root, "sdk/typescript/packages/client/dist/index.js")).href;
  const env = {
    ...process.env,
    RUNREEL_URL: server.url,
    RUNREEL_CLIENT: client,
    PYTHONPATH: resolve(root, "sdk/python/src"),
  };
  const raised: [string, string][] = [];
  for (const words of [[python, "raised.py"] as const, [process.execPath, "raised.mjs"] as const]) {
    const { stdout } = await run(words[0], [words[1]], { cwd: folder, env });
    for (const line of stdout.trim().split("\n")) raised.push(line.split("\t") as [string, string]);
  }
  expect(raised.map(([name]) => name).sort()).toEqual(Object.keys(table).sort());
  await page.setViewportSize({ width: 1280, height: 800 });
  for (const each of raised) await look(page, server.url, each, table[each[0]] ?? "");
  await look(page, server.url, ["a command of a runner", await ofRunner(server.url)], "the command ended with");
});

/** A run whose command fails at a runner. */
async function ofRunner(url: string): Promise<string> {
  const runner = spawn(binary, ["runner", "--url", url, "--agent", "outside", "--exec", "echo no report >&2; exit 3"]);
  try {
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ agent: "outside", title: "a command of a runner", start: false });
    const created = await fetch(`${url}/api/runs`, { method: "POST", headers, body });
    const { run_id } = (await created.json()) as { run_id: string };
    const status = async () => ((await (await fetch(`${url}/api/runs/${run_id}`)).json()) as { status: string }).status;
    await expect.poll(status).toBe("failed");
    return run_id;
  } finally {
    runner.kill();
  }
}
