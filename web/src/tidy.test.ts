import { expect, test } from "vitest";

const texts = import.meta.glob<string>("./**/*.{ts,svelte,css}", {
  query: "?raw",
  import: "default",
  eager: true,
});
const files = Object.entries(texts).map(([path, text]) => ({ path: path.slice(2), text }));

/** A folder names itself and those after it in its list, nothing else. */
const mayName: Record<string, string[]> = {
  api: [],
  ui: [],
  docs: [],
  guide: ["ui"],
  feed: ["api"],
  timeline: ["feed", "api", "ui"],
  pages: ["timeline", "feed", "api", "ui"],
};

/** The folder that `target` names when it stands in `path`. */
function folderNamed(path: string, target: string): string {
  return new URL(target, `file:///${path}`).pathname.split("/")[1] ?? "";
}

test("the files are all here", () => {
  expect(files.length).toBeGreaterThan(40);
});

test("folders are ranks: a file imports only from lower ones", () => {
  const wrong: string[] = [];
  for (const { path, text } of files) {
    const folder = path.split("/")[0] ?? "";
    const allowed = mayName[folder];
    if (allowed === undefined) continue;
    for (const [, target = ""] of text.matchAll(/from "(\.[^"]+)"/g)) {
      const named = folderNamed(path, target);
      if (named !== folder && !allowed.includes(named)) wrong.push(`${path} names ${named}`);
    }
  }
  expect(wrong).toEqual([]);
});

test("no file is longer than 400 lines", () => {
  const long = files.filter(({ text }) => text.split("\n").length > 400);
  expect(long.map(({ path }) => path)).toEqual([]);
});

test("no template has a style attribute or a data: address, which the policy would refuse", () => {
  const wrong = files.filter(
    ({ path, text }) => path.endsWith(".svelte") && /\sstyle="|data:[a-z]+\//.test(text),
  );
  expect(wrong.map(({ path }) => path)).toEqual([]);
});

test("no file names another origin", () => {
  const wrong = files.filter(({ path, text }) => !path.endsWith(".test.ts") && /https?:\/\/\w/.test(text));
  expect(wrong.map(({ path }) => path)).toEqual([]);
});
