// The budgets of the pages: what each loads to be drawn, as the wire carries it (compress.mjs). A page's own part is what
// it loads beside the shell; what it loads only when somebody asks for it is a part of its own, with the same budget.
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const kb = 1024;
/** The shell and the page of a run; every other page or part, beside the shell. */
const limits = { run: 45 * kb, other: 60 * kb };
const dist = fileURLToPath(new URL("../dist", import.meta.url));
const listed = fileURLToPath(new URL("../.manifest.json", import.meta.url));
if (!existsSync(dist) || !existsSync(listed)) {
    console.log("size: web/dist is not built, nothing to weigh");
    process.exit(0);
}
const manifest = JSON.parse(readFileSync(listed, "utf8"));

/** The entry and what it imports at once, styles too. */
function filesOf(entry, files = new Set()) {
    const chunk = manifest[entry];
    if (files.has(chunk.file)) return files;
    for (const file of [chunk.file, ...(chunk.css ?? [])]) files.add(file);
    for (const name of chunk.imports ?? []) filesOf(name, files);
    return files;
}

function bytesOf(files) {
    const size = (file) =>
        statSync(join(dist, existsSync(join(dist, `${file}.br`)) ? `${file}.br` : file)).size;
    return [...files].filter((file) => /\.(js|css)$/.test(file)).reduce((sum, file) => sum + size(file), 0);
}

const shell = filesOf("index.html");
let isOver = false;
function weigh(name, bytes, limit) {
    isOver ||= bytes > limit;
    const [size, most] = [bytes, limit].map((each) => (each / kb).toFixed(1).padStart(5));
    console.log(`size: ${name.padEnd(24)} ${size} KB of ${most}${bytes > limit ? ", too much" : ""}`);
}

weigh("shell", bytesOf(shell), limits.run);
const parts = Object.keys(manifest).filter(
    (entry) => manifest[entry].isDynamicEntry && entry.endsWith(".svelte"),
);
for (const entry of parts.sort()) {
    const name = entry.slice(entry.lastIndexOf("/") + 1, -".svelte".length);
    const files = filesOf(entry);
    if (name === "RunPage") weigh("shell + RunPage", bytesOf(new Set([...shell, ...files])), limits.run);
    else weigh(name, bytesOf([...files].filter((file) => !shell.has(file))), limits.other);
}
if (parts.length === 0) throw new Error("size: the manifest names no pages");
process.exit(isOver ? 1 : 0);
