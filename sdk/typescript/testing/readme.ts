import { readFile } from "node:fs/promises";

/** The blocks of a document that stand after a mark: what a reader copies and runs. */
export async function examples(document: URL, mark = "runs"): Promise<string[]> {
  const text = await readFile(document, "utf8");
  const found = [...text.matchAll(new RegExp(`<!-- ${mark} -->\n+\`\`\`\\w+\n(.*?)\n\`\`\``, "gs"))].map(
    ([, code]) => code as string,
  );
  if (found.length === 0) throw new Error(`${document.pathname} has no example that runs`);
  return found;
}
