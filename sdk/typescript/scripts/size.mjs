// What each package adds to a page: bundled whole, minified, as the wire carries it (brotli). One over its limit fails.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants } from "node:zlib";
import { rolldown } from "rolldown";

/** Bytes; a package that is not here is printed only. */
const limits = { client: 6 * 1024 };

const packages = fileURLToPath(new URL("../packages", import.meta.url));
const options = { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } };
let isOver = false;
for (const name of readdirSync(packages).sort()) {
    const manifest = JSON.parse(readFileSync(`${packages}/${name}/package.json`, "utf8"));
    // What a user of the package has already, and its own neighbours, which are weighed by themselves.
    const others = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies });
    const isExternal = (id) => others.some((other) => id === other || id.startsWith(`${other}/`));
    const external = (id) => isExternal(id) && id !== "eventsource-parser";
    const bundle = await rolldown({
        input: `${packages}/${name}/dist/index.js`,
        external,
        platform: "neutral",
    });
    const { output } = await bundle.generate({ format: "esm", minify: true });
    const code = output.map((chunk) => chunk.code ?? "").join("");
    const bytes = brotliCompressSync(code, options).length;
    const limit = limits[name];
    const told = limit === undefined ? "" : ` of ${(limit / 1024).toFixed(0)} KB`;
    console.log(`size: @runreel/${name} ${(bytes / 1024).toFixed(2)} KB${told} (brotli)`);
    if (limit !== undefined && bytes > limit) isOver = true;
}
process.exit(isOver ? 1 : 0);
