// Makes the guide (/docs/guide) of the repository's own markdown, in the frame that vite has built of guide.html.
import { existsSync, readdirSync, readFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import MiniSearch from "minisearch";
import { words } from "../src/guide/words.mjs";
import { page } from "./guide/markdown.mjs";
import { decisions, sections } from "./guide/pages.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const dist = fileURLToPath(new URL("../dist", import.meta.url));
const excerpt_chars = 140;

// What is there without the guide would pass for a build.
process.on("exit", (code) => code !== 0 && rmSync(dist, { recursive: true, force: true }));

const listed = sections.flatMap(({ pages }) => pages);
const more = readdirSync(join(root, decisions))
    .filter((name) => /^\d.*\.md$/.test(name))
    .map((name) => [decisions + name, "Decisions", name.replace(".md", "")]);
const all = [...listed, ...more];
const addresses = new Map(
    all.map(([file, , name]) => [file, name === "" ? "/docs/guide" : `/docs/guide/${name}`]),
);

// The image is built from a part of the repository (deploy/Dockerfile), where links to the rest cannot be checked.
const isWhole = existsSync(join(root, "backend"));
const isFile = (path) => !isWhole || existsSync(join(root, path));

const made = all.map(([file, name, slug]) => ({
    name,
    slug,
    ...page(file, readFileSync(join(root, file), "utf8"), addresses, isFile),
}));

/** What is wrong with a page: its own problems, and its links to headings that are not there. */
function problemsOf({ file, problems, links }) {
    const ids = (name) => made.find((each) => each.file === name).sections.map(({ id }) => id);
    const broken = links.filter(({ name, hash }) => !ids(name).includes(hash));
    return [...problems, ...broken.map(({ href }) => `a link to ${href}, which is not there`)].map(
        (problem) => `${file}: ${problem}`,
    );
}

const found = readdirSync(join(root, "docs"), { recursive: true }).map((name) => `docs/${name}`);
const problems = [
    ...made.flatMap(problemsOf),
    ...found
        .filter((file) => file.endsWith(".md") && !addresses.has(file))
        .map((file) => `${file}: in no section`),
    ...(addresses.size === new Set(addresses.values()).size ? [] : ["two pages have one address"]),
];
if (problems.length > 0) {
    console.error(problems.map((problem) => `guide: ${problem}`).join("\n"));
    process.exit(1);
}

const escaped = (text) => text.replace(/[&<>"]/g, (each) => `&#${each.codePointAt(0)};`);
const anchorTo = (file, name, isHere = false) =>
    `<a href="${addresses.get(file)}"${isHere ? ' aria-current="page"' : ""}>${escaped(name)}</a>`;

function navigation(here) {
    const items = (pages) =>
        pages.map(([file, name]) => `<li>${anchorTo(file, name, file === here)}</li>`).join("\n");
    return sections.map(({ title, pages }) => `<h2>${title}</h2>\n<ul>\n${items(pages)}\n</ul>`).join("\n");
}

/** The headings of a page, where it has several. */
function contents({ sections }) {
    const items = sections.filter(({ level }) => level === 2 || level === 3);
    if (items.length < 3) return "";
    const item = ({ level, id, title }) =>
        `<li class="level-${level}"><a href="#${id}">${escaped(title)}</a></li>`;
    return `<nav class="contents" aria-label="On this page">\n<ul>\n${items.map(item).join("\n")}\n</ul>\n</nav>\n`;
}

function neighbours(at) {
    const [before, after] = [listed[at - 1], at < listed.length ? listed[at + 1] : undefined];
    const to = (side, of) => (of ? `<p class="${side}">${anchorTo(of[0], of[1])}</p>\n` : "");
    const both = to("before", at < listed.length ? before : undefined) + to("after", after);
    return both === "" ? "" : `<nav class="neighbours" aria-label="Neighbours">\n${both}</nav>\n`;
}

const options = {
    idField: "address",
    fields: ["title", "page", "text"],
    storeFields: ["title", "page", "start"],
};
const search = new MiniSearch({ ...options, tokenize: words });
for (const { file, name, sections } of made) {
    for (const { level, id, title, texts } of sections) {
        const text = texts.join(" ");
        const start = text.replace(/\s+/g, " ").slice(0, excerpt_chars);
        const address = addresses.get(file) + (level === 1 ? "" : `#${id}`);
        search.add({ address, title, page: level === 1 && title === name ? "" : name, text, start });
    }
}
const index = JSON.stringify({ options, index: search });
const indexName = `assets/guide-${createHash("sha256").update(index).digest("hex").slice(0, 8)}.json`;
writeFileSync(join(dist, indexName), index);

const frame = readFileSync(join(dist, "guide.html"), "utf8");
rmSync(join(dist, "guide.html"));
mkdirSync(join(dist, "guide"), { recursive: true });
made.forEach((each, at) => {
    const { file, slug, sections, html } = each;
    const [title] = sections;
    const filled = {
        title: escaped(title.title),
        description: escaped(title.texts.join(" ").replace(/\s+/g, " ").slice(0, excerpt_chars)),
        index: `/${indexName}`,
        content: html.replace("</h1>\n", () => `</h1>\n${contents(each)}`) + neighbours(at),
        pages: navigation(file),
    };
    const whole = frame.replace(/\{\{(\w+)\}\}/g, (_, name) => filled[name]);
    writeFileSync(join(dist, "guide", `${slug || "index"}.html`), whole);
});
console.log(`guide: ${made.length} pages`);
