// The budget of the first page: everything it loads, as the wire carries it.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const limit = 46 * 1024;
const assets = fileURLToPath(new URL("../dist/assets", import.meta.url));
if (!existsSync(assets)) {
    console.log("size: web/dist is not built, nothing to weigh");
    process.exit(0);
}
let total = 0;
for (const name of readdirSync(assets).filter((file) => /\.(js|css)$/.test(file))) {
    const bytes = gzipSync(readFileSync(join(assets, name)), { level: 9 }).length;
    total += bytes;
    console.log(`size: ${name} ${(bytes / 1024).toFixed(1)} KB`);
}
console.log(`size: ${(total / 1024).toFixed(1)} KB of ${limit / 1024} KB (gzip)`);
process.exit(total > limit ? 1 : 0);
