/** The search of the guide: its index is loaded at the first input. Everything else works without scripts. */
import MiniSearch, { type Options, type SearchOptions, type SearchResult } from "minisearch";
import "./guide.css";
import { words } from "./words.mjs";

const results_max = 12;
/** A short word is matched exactly: as a prefix or misspelled, it would match half of the guide. */
const searchOptions: SearchOptions = {
  boost: { title: 4, page: 2 },
  prefix: (word) => word.length > 2,
  fuzzy: (word) => (word.length > 4 ? 0.2 : false),
  combineWith: "AND",
};
const box = document.getElementById("search") as HTMLElement;
const input = box.querySelector("input") as HTMLInputElement;
const found = document.getElementById("found") as HTMLElement;
const status = found.querySelector("p") as HTMLElement;
const list = found.querySelector("ol") as HTMLElement;
let loading: Promise<MiniSearch> | null = null;

async function load(): Promise<MiniSearch> {
  const response = await fetch(box.dataset["index"] ?? "");
  if (!response.ok) throw new Error(`the index: ${response.status}`);
  const { options, index } = (await response.json()) as { options: Options; index: never };
  return MiniSearch.loadJS(index, { ...options, searchOptions, tokenize: words });
}

function child(of: HTMLElement, name: string, text: string): HTMLElement {
  const made = document.createElement(name);
  made.textContent = text;
  of.append(made);
  return made;
}

function show(results: SearchResult[]): void {
  status.textContent =
    results.length === 0
      ? "Nothing found."
      : `${results.length} ${results.length === 1 ? "section" : "sections"} found.`;
  list.replaceChildren();
  for (const { id, title, page, start } of results.slice(0, results_max)) {
    const link = child(child(list, "li", ""), "a", "") as HTMLAnchorElement;
    link.href = id as string;
    child(link, "strong", title as string);
    if (page !== "") child(link, "span", page as string);
    child(link, "small", start as string);
  }
  found.hidden = false;
}

function close(): void {
  found.hidden = true;
}

async function search(): Promise<void> {
  const asked = input.value.trim();
  if (asked === "") return close();
  try {
    loading ??= load();
    const index = await loading;
    if (input.value.trim() !== asked) return;
    const all = index.search(asked);
    // Sections with some of the words are better than nothing.
    show(all.length > 0 ? all : index.search(asked, { combineWith: "OR" }));
  } catch {
    loading = null;
    list.replaceChildren();
    status.textContent = "The search could not be loaded.";
    found.hidden = false;
  }
}

/** Moves the focus through the box and its results. */
function step(by: number): void {
  const stops = [input, ...list.querySelectorAll("a")];
  const at = stops.indexOf(document.activeElement as HTMLInputElement);
  stops[(at + by + stops.length) % stops.length]?.focus();
}

function press(event: KeyboardEvent): void {
  if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  const isInside = box.contains(document.activeElement);
  if (event.key === "/" && document.activeElement !== input) input.focus();
  else if (!isInside) return;
  else if (event.key === "Escape") {
    input.focus();
    close();
  } else if (found.hidden) return;
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") step(event.key === "ArrowDown" ? 1 : -1);
  else if (event.key === "Enter" && document.activeElement === input) list.querySelector("a")?.click();
  else return;
  event.preventDefault();
}

/** Applies the theme that was chosen in the UI; without a choice it is the browser's. */
function applyTheme(): void {
  try {
    const theme = localStorage.getItem("runreel.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset["theme"] = theme;
  } catch {
    // There is no choice then.
  }
}

applyTheme();
box.hidden = false;
input.addEventListener("input", () => void search());
input.addEventListener("focus", () => {
  if (input.value.trim() !== "" && found.hidden) void search();
});
document.addEventListener("keydown", press);
document.addEventListener("click", (event) => {
  const isResult = event.target instanceof Element && event.target.closest("#found a") !== null;
  if (isResult || !box.contains(event.target as Node)) close();
});
box.addEventListener("focusout", ({ relatedTarget }) => {
  if (relatedTarget instanceof Node && !box.contains(relatedTarget)) close();
});
