// What npm would get of each package: complete, and resolved alike by every tool (publint, Are The Types Wrong).
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
let hasFailed = false;
for (const name of readdirSync(`${root}/packages`).sort()) {
    const folder = `packages/${name}`;
    for (const command of [
        ["publint", "--strict", folder],
        ["attw", "--pack", folder, "--profile", "esm-only", "--format", "ascii"],
    ]) {
        const done = spawnSync("npx", ["--no-install", ...command], { cwd: root, encoding: "utf8" });
        if (done.status === 0) {
            console.log(`packages: @runreel/${name} passes ${command[0]}`);
            continue;
        }
        hasFailed = true;
        console.log(`packages: @runreel/${name} fails ${command.join(" ")}\n${done.stdout}${done.stderr}`);
    }
}
process.exit(hasFailed ? 1 : 0);
