// Compresses the built files, so that the server sends them as they are: `name.br` and `name.gz` beside `name`.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const dist = fileURLToPath(new URL("../dist", import.meta.url));
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !/\.(html|js|css|svg|json)$/.test(entry.name)) continue;
    const file = join(entry.parentPath, entry.name);
    const bytes = readFileSync(file);
    const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
    for (const [ending, compressed] of [
        ["br", brotliCompressSync(bytes, { params })],
        ["gz", gzipSync(bytes, { level: 9 })],
    ]) {
        if (compressed.length < bytes.length) writeFileSync(`${file}.${ending}`, compressed);
    }
}
