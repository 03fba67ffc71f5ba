/** The parts of an OpenAPI document that the page needs. */
export interface Document {
  paths: Record<string, Record<string, Described>>;
}

interface Described {
  tags?: string[];
  operationId?: string;
  summary?: string;
}

export interface Operation {
  /** `GET /api/runs` */
  route: string;
  summary: string;
  /** Its fragment in Swagger UI. */
  hash: string;
}

/** The operations of a document by tag, in the order of the document. */
export function operationsOf({ paths }: Document): Map<string, Operation[]> {
  const byTag = new Map<string, Operation[]>();
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, { tags = ["default"], operationId = "", summary = "" }] of Object.entries(methods)) {
      const [tag = "default"] = tags;
      const hash = `#/${encodeURIComponent(tag)}/${encodeURIComponent(operationId)}`;
      const operation = { route: `${method.toUpperCase()} ${path}`, summary, hash };
      byTag.set(tag, [...(byTag.get(tag) ?? []), operation]);
    }
  }
  return byTag;
}
