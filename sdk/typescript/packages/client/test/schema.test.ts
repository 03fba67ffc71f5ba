import { readFile } from "node:fs/promises";
import openapiTS, { astToString, COMMENT_HEADER, type OpenAPI3 } from "openapi-typescript";
import { expect, test } from "vitest";

// Written by `npm run generate`, which is this test with `--update`. The paths stay out: `runs.ts` names its own.
test("schema.ts is what the server's OpenAPI document generates", async () => {
  const snapshot = new URL("../../../../../tests/it/snapshots/openapi.json", import.meta.url);
  const document = { ...(JSON.parse(await readFile(snapshot, "utf8")) as OpenAPI3), paths: {} };
  const generated = COMMENT_HEADER + astToString(await openapiTS(document, { silent: true }));
  await expect(generated).toMatchFileSnapshot("../src/schema.ts", "run `npm run generate`");
});
