#!/usr/bin/env node
// Runs the program of this platform's package, with the same arguments, signals and exit code.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

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
