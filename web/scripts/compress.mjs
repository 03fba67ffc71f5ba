// Compresses the built files, so that the server sends them as they are: `name.br` and `name.gz` in place of `name`.
import { readdirSync, readFileSync, renameSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const dist = fileURLToPath(new URL("../dist", import.meta.url));
// Which file imports which is for size.mjs, and nothing to be served.
renameSync(join(dist, ".vite/manifest.json"), join(dist, "../.manifest.json"));
rmSync(join(dist, ".vite"), { recursive: true });
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !/\.(html|js|css|svg|json)$/.test(entry.name)) continue;
    const file = join(entry.parentPath, entry.name);
    const bytes = readFileSync(file);
    const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
    const brotli = brotliCompressSync(bytes, { params });
    const gzip = gzipSync(bytes, { level: 9 });
    if (brotli.length >= bytes.length || gzip.length >= bytes.length) continue;
    writeFileSync(`${file}.br`, brotli);
    writeFileSync(`${file}.gz`, gzip);
    unlinkSync(file);
}
