import { expect, test } from "vitest";
import { page } from "./markdown.mjs";

const addresses = new Map([
    ["docs/a.md", "/docs/guide/a"],
    ["docs/tasks/b.md", "/docs/guide/b"],
    ["docs/adr/README.md", "/docs/guide/decisions"],
]);
const made = (text) => page("docs/a.md", `# A\n\n${text}`, addresses, (path) => path === "deploy/Dockerfile");

test("links to pages lead to their addresses, and the rest of the repository becomes text", () => {
    const text =
        "[b](tasks/b.md#one), [b](tasks/b.md), [here](#a), [all](adr/), [there](https://example.com), ";
    const { html, links, problems } = made(`${text}[a file](../deploy/Dockerfile).`);
    expect([...html.matchAll(/<p>.*<\/p>/g)][0]?.[0]).toBe(
        '<p><a href="/docs/guide/b#one">b</a>, <a href="/docs/guide/b">b</a>, <a href="#a">here</a>, ' +
            '<a href="/docs/guide/decisions">all</a>, <a href="https://example.com">there</a>, a file.</p>',
    );
    expect(links.map(({ name, hash }) => [name, hash])).toEqual([
        ["docs/tasks/b.md", "one"],
        ["docs/a.md", "a"],
    ]);
    expect(problems).toEqual([]);
});

test("what cannot be shown is a problem, comments are not", () => {
    const text =
        "[b](tasks/c.md), ![an image](a.png), a <b>word</b>.\n\n<!-- runs -->\n\n<picture></picture>";
    const { html, problems } = made(text);
    expect(problems).toEqual([
        "a link to tasks/c.md, which is not there",
        "an image: a.png",
        ...["<b>", "</b>", "<picture>", "</picture>"].map((tag) => `HTML other than a comment: ${tag}`),
    ]);
    expect(html).not.toContain("<!--");
});

test("nothing in the markup is against the policy of the server", () => {
    const { html } = made('| a | b |\n|---|--:|\n| 1 | 2 |\n\n```sh\necho "<script>"\n```');
    expect(html).toContain('<td class="to-right">2</td>');
    expect(html).toContain('<pre tabindex="0"><code class="language-sh">echo &quot;&lt;script&gt;');
    expect(html).not.toMatch(/ style=| on[a-z]+=|<script/);
});

test("headings have GitHub's anchors, and what is below them is searched", () => {
    const { sections } = made(
        "First.\n\n## `a_b`, and *c*?\n\n- one\n\n```\ntwo\n```\n\n## Twice\n\n## Twice\n",
    );
    expect(sections.map(({ id, title, texts }) => [id, title, texts])).toEqual([
        ["a", "A", ["First."]],
        ["a_b-and-c", "a_b, and c?", ["one", "two\n"]],
        ["twice", "Twice", []],
        ["twice-1", "Twice", []],
    ]);
});
