/** The README's example as it stands there, in every runtime that is to be had here. */

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { examples } from "../../../testing/readme.ts";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const program = fileURLToPath(new URL("./.example.mjs", import.meta.url));
const libc = existsSync("/lib/ld-musl-x86_64.so.1") || existsSync("/lib/ld-musl-aarch64.so.1") ? "-musl" : "";
const cpu = process.arch === "arm64" ? "aarch64" : process.arch;
// Its own command needs an install script, which is not run here.
const bun = `${root}/node_modules/@oven/bun-${process.platform}-${cpu}${libc}/bin/bun`;

beforeAll(async () => {
  const [example] = await examples(new URL("../README.md", import.meta.url));
  await writeFile(program, example as string);
});
afterAll(() => rm(program, { force: true }));

test.each([
  ["Node.js", [process.execPath]],
  [
    "Deno",
    [
      `${root}/node_modules/.bin/deno`,
      "run",
      "--quiet",
      "--no-lock",
      "--node-modules-dir=manual",
      "--allow-all",
    ],
  ],
  ["Bun", [bun, "run"]],
])("the example of the README runs in %s", async (_, [command = "", ...words]) => {
  const env = { ...process.env, RUNREEL_URL: inject("url"), NO_COLOR: "1" };
  const { stdout, stderr } = await promisify(execFile)(command, [...words, program], {
    cwd: import.meta.dirname,
    env,
  });
  expect(stdout).toBe("4 search 3 hits\n6 done\n");
  expect(stderr).toBe("");
});

test("the program of the guide's page for JavaScript prints its run", async () => {
  const page = new URL("../../../../../docs/tasks/javascript.md", import.meta.url);
  const [example = ""] = await examples(page, "runs with the package");
  const env = { ...process.env, RUNREEL_URL: inject("url") };
  const words = ["--input-type=module", "-e", example];
  const { stdout } = await promisify(execFile)(process.execPath, words, { cwd: import.meta.dirname, env });
  const types = ["run.created", "run.started", "tool.started", "tool.completed", "run.completed"];
  expect(stdout.trim().split("\n")).toEqual(types.map((type, at) => `${at + 1} ${type}`));
});
