// The budget of the first page: everything that index.html loads by itself, as the wire carries it (compress.mjs).
// What a page loads when it is opened is not in it, and is listed beside it.
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";

const limit = 42 * 1024;
const dist = fileURLToPath(new URL("../dist", import.meta.url));
if (!existsSync(dist)) {
    console.log("size: web/dist is not built, nothing to weigh");
    process.exit(0);
}
const page = gunzipSync(readFileSync(join(dist, "index.html.gz"))).toString();
let total = 0;
for (const file of readdirSync(join(dist, "assets")).filter((file) => /\.(js|css)\.br$/.test(file))) {
    const bytes = statSync(join(dist, "assets", file)).size;
    const name = file.slice(0, -".br".length);
    const isFirst = page.includes(`/assets/${name}`);
    if (isFirst) total += bytes;
    console.log(`size: ${name} ${(bytes / 1024).toFixed(1)} KB${isFirst ? "" : ", later"}`);
}
console.log(`size: ${(total / 1024).toFixed(1)} KB of ${limit / 1024} KB (brotli)`);
process.exit(total > limit || total === 0 ? 1 : 0);
