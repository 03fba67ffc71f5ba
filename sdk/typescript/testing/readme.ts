import { readFile } from "node:fs/promises";

/** The blocks of a document that stand after the mark `<!-- runs -->`: what a reader copies and runs. */
export async function examples(document: URL): Promise<string[]> {
  const text = await readFile(document, "utf8");
  const found = [...text.matchAll(/<!-- runs -->\n+```\w+\n(.*?)\n```/gs)].map(([, code]) => code as string);
  if (found.length === 0) throw new Error(`${document.pathname} has no example that runs`);
  return found;
}
