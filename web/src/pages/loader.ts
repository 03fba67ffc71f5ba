import type { Component } from "svelte";
import type { PageName } from "./routes";

/** The properties of every page. */
export interface PageProps {
  /** The id in the page's address; empty for a page without one. */
  id: string;
  /** Called when the server requires a token, or another one. */
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
  // The list of the others is a file too, so that the first page does not load it.
  return (await import("./otherpages")).otherPages[page]();
}
