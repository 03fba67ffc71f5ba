import type { components } from "@runreel/client";
import { atMs } from "./read";

type Schemas = components["schemas"];
export type IndexPage = Schemas["EventIndex"];
export type Level = Schemas["Level"];

/** What a page keeps of an event, and all that a waterfall needs; its payload is not read until it is opened. */
export interface EventRow {
  seq: number;
  at_ms: number;
  type: string;
  level: Level;
  span_id: string | null;
  parent_span_id: string | null;
  /** The label of its span. */
  name: string | null;
  title: string;
  duration_ms: number | null;
  child_run_id: string | null;
}

/** The rows of a page of the index, in the order of their seqs. */
export function rowsOf(page: IndexPage): EventRow[] {
  const began_ms = page.began_at ? atMs(page.began_at) : 0;
  const ids = new Map<string | null, string | null>();
  // Shares one copy of an id that several events have.
  const same = (id: string | null) => {
    const known = ids.get(id);
    if (known === undefined) ids.set(id, id);
    return known ?? id;
  };
  return page.type.map((type, at) => ({
    seq: (page.first_seq ?? 0) + at,
    at_ms: began_ms + (page.at_ms[at] ?? 0),
    type: shared(type),
    level: shared(page.level[at] ?? "info"),
    span_id: same(page.span_id[at] ?? null),
    parent_span_id: same(page.parent_span_id[at] ?? null),
    name: page.name[at] ?? null,
    title: page.title[at] ?? "",
    duration_ms: page.duration_ms[at] ?? null,
    child_run_id: page.child_run_id[at] ?? null,
  }));
}

const words = new Map<string, string>();
const words_max = 1000;

/** One copy of each type's name instead of one per event. */
export function shared<Word extends string>(word: Word): Word {
  const known = words.get(word);
  if (known !== undefined) return known as Word;
  if (words.size < words_max) words.set(word, word);
  return word;
}
