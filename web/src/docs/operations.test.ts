import { expect, test } from "vitest";
import { operationsOf } from "./operations";

test("operations are listed by tag in the order of the document, with the address of Swagger UI", () => {
  const list = { tags: ["runs"], operationId: "list_runs", summary: "The runs" };
  const live = { tags: ["operations"], operationId: "livez" };
  const create = { tags: ["runs"], operationId: "create_run", summary: "Create a run" };
  const paths = { "/api/runs": { get: list, post: create }, "/livez": { get: live } };
  expect([...operationsOf({ paths })]).toEqual([
    [
      "runs",
      [
        { route: "GET /api/runs", summary: "The runs", hash: "#/runs/list_runs" },
        { route: "POST /api/runs", summary: "Create a run", hash: "#/runs/create_run" },
      ],
    ],
    ["operations", [{ route: "GET /livez", summary: "", hash: "#/operations/livez" }]],
  ]);
});
