import type { components } from "@runreel/client";
import { transport } from "./client";

type Schemas = components["schemas"];

/** What can be asked: views, functions, examples, limits. */
export type Guide = Schemas["Guide"];
export type View = Schemas["View"];
export type Example = Schemas["Example"];
export type QueryResult = Schemas["QueryResult"];
export type Column = Schemas["QueryColumn"];

const path = "/api/sql";

export const guide = (signal?: AbortSignal): Promise<Guide> =>
  transport.json<Guide>(`${path}/schema`, { signal });

export const ask = (query: string, rows_max: number, signal?: AbortSignal): Promise<QueryResult> =>
  transport.json<QueryResult>(path, { method: "POST", body: { query, rows_max }, signal });

/** The same result as a file, made by the server. */
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

/** A text as a literal of a query. */
export const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;
