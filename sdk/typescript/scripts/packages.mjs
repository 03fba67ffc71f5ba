// What npm would get of each package: complete, of the one version, and resolved alike by every tool (publint, Are The
// Types Wrong).
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const [, version] = /^version = "(.+)"$/m.exec(readFileSync(`${root}/../../Cargo.toml`, "utf8"));

const run = (command, ...words) => spawnSync(command, words, { cwd: root, encoding: "utf8" });

/** What is wrong with what `npm publish` would send. */
function published(folder) {
    const done = run("npm", "publish", "--dry-run", "--offline", "--json", `./${folder}`);
    if (done.status !== 0) return [done.stdout + done.stderr];
    const manifest = JSON.parse(readFileSync(`${root}/${folder}/package.json`, "utf8"));
    const files = JSON.parse(done.stdout)[manifest.name].files.map(({ path }) => path);
    const entries = Object.values(manifest.exports).filter((entry) => typeof entry !== "string");
    const wanted = ["LICENSE", "README.md", ...entries.flatMap((entry) => Object.values(entry))];
    const missing = wanted.map((file) => file.replace("./", "")).filter((file) => !files.includes(file));
    const odd = files.filter(
        (file) => !/^(LICENSE|README\.md|package\.json|(dist|src)\/[\w-]+\.[\w.]+)$/.test(file),
    );
    const own = Object.entries(manifest.dependencies ?? {}).filter(([name]) => name.startsWith("@runreel/"));
    const versions = [[manifest.name, manifest.version], ...own].filter(([, is]) => is !== version);
    return [
        ...missing.map((file) => `${file} is missing`),
        ...odd.map((file) => `${file} does not belong there`),
        ...versions.map(([name, is]) => `${name} is ${is}, and Cargo.toml has ${version}`),
        ...(/auto-corrected/.test(done.stderr) ? [done.stderr] : []),
    ];
}

function failures(name, folder) {
    const wrong = { "npm publish --dry-run": published(folder) };
    for (const words of [
        ["publint", "--strict", folder],
        ["attw", "--pack", folder, "--profile", "esm-only", "--format", "ascii"],
    ]) {
        const { status, stdout, stderr } = run("npx", "--no-install", ...words);
        wrong[words[0]] = status === 0 ? [] : [stdout + stderr];
    }
    for (const [check, found] of Object.entries(wrong))
        console.log(
            [`packages: @runreel/${name} ${found.length === 0 ? "passes" : "fails"} ${check}`, ...found].join(
                "\n",
            ),
        );
    return Object.values(wrong).flat();
}

const names = readdirSync(`${root}/packages`).sort();
process.exit(names.flatMap((name) => failures(name, `packages/${name}`)).length === 0 ? 0 : 1);
