import type { Guide, View } from "../api/sql";

/** The kind of a piece of a query, which has its colour. */
export type Kind = "keyword" | "text" | "number" | "comment" | "name" | "other";

export interface Piece {
  kind: Kind;
  text: string;
}

const words =
  "select from where group by having order limit offset with as on using join left right full inner outer cross lateral union all except intersect values table distinct and or not in is null true false like ilike between case when then else end exists asc desc nulls first last filter within over partition rows range preceding following current row interval date timestamp timestamptz cast any some array recursive materialized fetch";
const keywords = new Set(words.split(" "));

const pattern =
  /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^']|'')*'?|\$\$[\s\S]*?(?:\$\$|$))|(\b\d+(?:\.\d+)?\b)|("[^"]*"?|[\p{L}_][\p{L}\p{N}_$]*)|(\s+|.)/gu;

/** The pieces of a query; together they are its text. */
export function piecesOf(query: string): Piece[] {
  const pieces: Piece[] = [];
  for (const [text, comment, quoted, number, word] of query.matchAll(pattern)) {
    const kind: Kind =
      comment !== undefined
        ? "comment"
        : quoted !== undefined
          ? "text"
          : number !== undefined
            ? "number"
            : word === undefined
              ? "other"
              : keywords.has(word.toLowerCase())
                ? "keyword"
                : "name";
    const last = pieces.at(-1);
    if (last?.kind === kind && kind === "other") last.text += text;
    else pieces.push({ kind, text });
  }
  return pieces;
}

/** A suggestion for the word that is being typed. */
export interface Word {
  text: string;
  kind: "column" | "view" | "function" | "keyword";
  /** A short description. */
  about: string;
}

const offered_max = 9;
const column = ({ name, type }: { name: string; type: string }): Word => ({
  text: name,
  kind: "column",
  about: type,
});

/** Views by the names that the query gives them. */
function namesIn(query: string, views: readonly View[]): Map<string, View> {
  const named = new Map<string, View>();
  const found = query.matchAll(
    /\b(?:from|join)\s+(?:runreel\.)?(\w+)(?:\s+(?:as\s+)?(?!on\b|using\b)(\w+))?/gi,
  );
  for (const [, name = "", alias] of found) {
    const view = views.find((each) => each.name === name.toLowerCase());
    if (view === undefined) continue;
    named.set(view.name, view);
    if (alias !== undefined && !keywords.has(alias.toLowerCase())) named.set(alias.toLowerCase(), view);
  }
  return named;
}

/** The beginning of a word before the caret, and where it begins; null where nothing is offered. */
export function wordAt(
  query: string,
  caret: number,
): { from: number; of: string | null; begun: string } | null {
  const before = query.slice(0, caret);
  const [, of, begun = ""] = /(?:\b(\w+)\.)?(\w*)$/.exec(before) ?? [];
  const inside = piecesOf(before).at(-1)?.kind;
  if (inside === "text" || inside === "comment" || /^\d/.test(begun)) return null;
  return { from: caret - begun.length, of: of?.toLowerCase() ?? null, begun: begun.toLowerCase() };
}

/** Suggestions at the caret: first the columns of the views that the query names. */
export function offered(guide: Guide, query: string, caret: number): readonly Word[] {
  const at = wordAt(query, caret);
  if (at === null) return [];
  const named = namesIn(query, guide.views);
  const fits = ({ text }: Word) => text.toLowerCase().startsWith(at.begun) && text.toLowerCase() !== at.begun;
  if (at.of !== null) {
    const view = named.get(at.of) ?? guide.views.find(({ name }) => name === at.of);
    return (view?.columns ?? []).map(column).filter(fits).slice(0, offered_max);
  }
  const columns = new Map(
    [...named.values()].flatMap((view) => view.columns.map((each) => [each.name, column(each)])),
  );
  const views = guide.views.map(({ name }): Word => ({ text: name, kind: "view", about: "view" }));
  const isAfterFrom = /\b(?:from|join)\s+\w*$/i.test(query.slice(0, caret));
  const functions = guide.functions.map(({ name }): Word => ({
    text: `${name}(`,
    kind: "function",
    about: "function",
  }));
  const others = [...keywords].map((text): Word => ({ text, kind: "keyword", about: "" }));
  const all = isAfterFrom ? views : [...columns.values(), ...views, ...functions, ...others];
  return all.filter(fits).slice(0, offered_max);
}

/** The index of a character whose position the server counts from 1, in code points rather than UTF-16 units. */
export function placeOf(query: string, position: number): { at: number; line: number; column: number } {
  const before = [...query].slice(0, Math.max(0, position - 1)).join("");
  const lines = before.split("\n");
  return { at: before.length, line: lines.length, column: [...(lines.at(-1) ?? "")].length + 1 };
}
