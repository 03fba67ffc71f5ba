import type { Component } from "svelte";
import type { PageName } from "./routes";

/** What every page gets. */
export interface PageProps {
  /** What the page is about, from its address; empty for a page of its own. */
  id: string;
  /** The server wants a token, or another one. */
  onrefused: () => void;
}

export type Loader = () => Promise<{ default: Component<PageProps> }>;

/** Each page is a file of its own, loaded when it is opened. The browser keeps what was loaded once. */
export async function loadPage(page: PageName): Promise<Component<PageProps>> {
  return (await loaderOf(page)).default;
}

async function loaderOf(page: PageName) {
  if (page === "runs") return import("./RunsPage.svelte");
  if (page === "run") return import("./RunPage.svelte");
  // Where the others are is a file too: the first page does not wait for all their names.
  return (await import("./otherpages")).otherPages[page]();
}
