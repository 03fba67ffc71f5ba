import openapiTS, { astToString, COMMENT_HEADER, type OpenAPI3 } from "openapi-typescript";
import { expect, test } from "vitest";
import openapi from "../../tests/it/snapshots/openapi.json?raw";

// Written by `npm run generate`, which is this test with `--update`. The paths stay out: `client.ts` names its own.
test("schema.ts is what the server's OpenAPI document generates", async () => {
  const document: OpenAPI3 = { ...(JSON.parse(openapi) as OpenAPI3), paths: {} };
  const generated = COMMENT_HEADER + astToString(await openapiTS(document, { silent: true }));
  await expect(generated).toMatchFileSnapshot("./api/schema.ts", "run `npm run generate`");
});
