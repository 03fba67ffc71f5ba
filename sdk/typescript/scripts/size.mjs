// What each package adds to a page: bundled whole, minified, as the wire carries it (brotli). One over its limit fails.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants } from "node:zlib";
import { rolldown } from "rolldown";

/** Bytes; an entry that is not here is printed only. */
const limits = { "@runreel/client": 6.5 * 1024 };

const packages = fileURLToPath(new URL("../packages", import.meta.url));
const options = { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } };

/** Bytes of one entry with everything that is in it, but for what its user has already and is weighed by itself. */
async function weigh(input, manifest) {
    const others = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies });
    const external = (id) =>
        id.startsWith("node:") || others.some((other) => id === other || id.startsWith(`${other}/`));
    const bundle = await rolldown({ input, external, platform: "neutral" });
    const { output } = await bundle.generate({ format: "esm", minify: true });
    return brotliCompressSync(output.map((chunk) => chunk.code ?? "").join(""), options).length;
}

let isOver = false;
for (const folder of readdirSync(packages).sort()) {
    const manifest = JSON.parse(readFileSync(`${packages}/${folder}/package.json`, "utf8"));
    for (const [entry, { default: file }] of Object.entries(manifest.exports)) {
        if (file === undefined) continue;
        const name = manifest.name + entry.slice(1);
        const bytes = await weigh(`${packages}/${folder}/${file}`, manifest);
        const limit = limits[name];
        const told = limit === undefined ? "" : ` of ${limit / 1024} KB`;
        console.log(`size: ${name} ${(bytes / 1024).toFixed(2)} KB${told} (brotli)`);
        if (limit !== undefined && bytes > limit) isOver = true;
    }
}
process.exit(isOver ? 1 : 0);
