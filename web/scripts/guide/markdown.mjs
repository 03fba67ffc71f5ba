// Markdown to what a page of the guide holds: HTML that the server's policy permits, headings and texts to search.
import { slug } from "github-slugger";
import MarkdownIt from "markdown-it";
import anchor from "markdown-it-anchor";
import { posix } from "node:path";

const markdown = new MarkdownIt({ html: true });
// The anchors are those that GitHub gives, so that a link works in both places.
markdown.use(anchor, { level: [1, 2, 3, 4], slugify: slug, permalink: anchor.permalink.headerLink() });

const { rules } = markdown.renderer;
rules.html_block = rules.html_inline = (tokens, index, _options, { problems }) => {
    const { content } = tokens[index];
    if (!/^\s*<!--.*-->\s*$/s.test(content)) problems.push(`HTML other than a comment: ${content.trim()}`);
    return "";
};
// What is wider than the page is scrolled, also with the keyboard.
rules.table_open = () => '<div class="wide" role="group" aria-label="Table" tabindex="0"><table>\n';
rules.table_close = () => "</table></div>\n";
// A long name may be broken at its underscores, so that it leaves room for the other columns of a table.
const { code_inline, fence } = rules;
rules.code_inline = (...of) => code_inline(...of).replace(/_(?=\w{2})/g, "_<wbr>");
rules.fence = (...of) => fence(...of).replace("<pre>", '<pre tabindex="0">');

/** Where a link of a file leads; null if that is not in the guide. */
function target(href, { file, addresses, isFile, problems }) {
    const [path, hash] = href.split("#");
    const named = posix.normalize(posix.join(posix.dirname(file), decodeURI(path)));
    const name = path === "" ? file : addresses.has(named) ? named : posix.join(named, "README.md");
    if (addresses.has(name)) return { name, hash };
    if (!isFile(named)) problems.push(`a link to ${href}, which is not there`);
    return null;
}

/** Links between files become links between pages; those to other files of the repository become text. */
function link(inline, env) {
    let isText = false;
    for (const token of inline.children) {
        if (token.type === "image") env.problems.push(`an image: ${token.attrGet("src")}`);
        if (token.type === "link_open") {
            const href = token.attrGet("href");
            if (/^[a-z]+:/i.test(href) || token.attrGet("class") === "header-anchor") continue;
            const to = target(href, env);
            isText = to === null;
            if (isText) token.hidden = true;
            else {
                const hash = to.hash === undefined ? "" : `#${to.hash}`;
                if (to.hash !== undefined) env.links.push({ ...to, href });
                token.attrSet("href", href.startsWith("#") ? hash : env.addresses.get(to.name) + hash);
            }
        } else if (token.type === "link_close" && isText) {
            token.hidden = true;
            isText = false;
        }
    }
}
rules.link_open = (tokens, index, options, _env, self) =>
    tokens[index].hidden ? "" : self.renderToken(tokens, index, options);
rules.link_close = (tokens, index) => (tokens[index].hidden ? "" : "</a>");

/** A style in the markup is against the policy. */
function align(cell) {
    const style = cell.attrGet("style");
    if (style === null) return;
    cell.attrs = cell.attrs.filter(([name]) => name !== "style");
    cell.attrSet("class", style.replace("text-align:", "to-"));
}

const textOf = ({ children }) =>
    children
        .map(({ type, content }) => (type === "softbreak" ? " " : type.startsWith("html") ? "" : content))
        .join("");

/**
 * `addresses`: file → address of its page; `isFile`: whether the repository has a file or folder.
 * `sections`: a heading with what is said below it, to be searched.
 */
export function page(file, text, addresses, isFile) {
    const env = { file, addresses, isFile, problems: [], links: [] };
    const tokens = markdown.parse(text, env);
    const sections = [];
    tokens.forEach((token, at) => {
        if (token.type === "th_open" || token.type === "td_open") align(token);
        if (token.type === "inline") link(token, env);
        if (token.type === "heading_open") {
            const title = textOf(tokens[at + 1]);
            sections.push({ level: Number(token.tag.slice(1)), id: token.attrGet("id"), title, texts: [] });
        } else if (
            token.type === "fence" ||
            (token.type === "inline" && tokens[at - 1].type !== "heading_open")
        ) {
            sections.at(-1)?.texts.push(token.type === "fence" ? token.content : textOf(token));
        }
    });
    if (sections[0]?.level !== 1) env.problems.push("no title at its beginning");
    return { ...env, sections, html: markdown.renderer.render(tokens, markdown.options, env) };
}
