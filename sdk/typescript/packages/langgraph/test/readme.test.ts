/** The README's example as it stands there. */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, inject, test } from "vitest";
import { examples } from "../../../testing/readme.ts";

test("the example of the README stops at a question and goes on with the answer", async () => {
  const [example = ""] = await examples(new URL("../README.md", import.meta.url));
  const env = { ...process.env, RUNREEL_URL: inject("url"), NO_COLOR: "1" };
  const words = ["--input-type=module", "-e", example];
  const { stdout, stderr } = await promisify(execFile)(process.execPath, words, {
    cwd: import.meta.dirname,
    env,
  });
  expect(stdout).toContain("value: 'Where to?'");
  expect(stdout).toContain("{ city: 'Rome', trip: 'a week in Rome' }");
  expect(stderr).toBe("");
});
