import type { components } from "@runreel/client";
import { transport } from "./client";

type Schemas = components["schemas"];

/** What queries can use: views, functions, examples, limits. */
export type Guide = Schemas["Guide"];
export type View = Schemas["View"];
export type Example = Schemas["Example"];
export type QueryResult = Schemas["QueryResult"];
export type Column = Schemas["QueryColumn"];

const path = "/api/sql";

export const guide = (signal?: AbortSignal): Promise<Guide> =>
  transport.json<Guide>(`${path}/schema`, { signal });

export async function ask(query: string, rows_max: number, signal?: AbortSignal): Promise<QueryResult> {
  const response = await transport.call(path, { method: "POST", body: { query, rows_max }, signal });
  return resultOf(await response.text());
}

/** Types whose values may have more digits than a JavaScript number. */
const exact = new Set(["int8", "numeric"]);

/** Numbers of such columns that would lose digits become text, if the browser's `JSON.parse` gives their source. */
function resultOf(text: string): QueryResult {
  const result = JSON.parse(text) as QueryResult;
  const places = result.columns.flatMap(({ type }, at) => (exact.has(type) ? [at] : []));
  if (places.length === 0) return result;
  const asWritten = (_: string, value: unknown, { source }: { source?: string } = {}) =>
    typeof value === "number" && source !== undefined && source !== String(value) ? source : value;
  const { rows } = JSON.parse(text, asWritten) as QueryResult;
  result.rows.forEach((row, at) => places.forEach((place) => (row[place] = rows[at]?.[place])));
  return result;
}

/** The result as CSV, made by the server. */
export async function askCsv(query: string, rows_max: number, signal?: AbortSignal): Promise<Blob> {
  const headers = { accept: "text/csv" };
  const response = await transport.call(path, {
    method: "POST",
    body: { query, rows_max },
    headers,
    signal,
  });
  return response.blob();
}

/** A text as an SQL literal. */
export const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;
