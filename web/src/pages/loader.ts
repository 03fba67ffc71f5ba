import type { Component } from "svelte";
import type { PageName } from "./routes";

/** What every page gets. */
export interface PageProps {
  /** What the page is about, from its address; empty for a page of its own. */
  id: string;
  /** The server wants a token, or another one. */
  onrefused: () => void;
}

type Loader = () => Promise<{ default: Component<PageProps> }>;

/** Each page is a file of its own, loaded when it is opened. */
const loaders: Record<PageName, Loader> = {
  runs: () => import("./RunsPage.svelte"),
  run: () => import("./RunPage.svelte"),
  threads: () => import("./ThreadsPage.svelte"),
  thread: () => import("./ThreadPage.svelte"),
  inbox: () => import("./InboxPage.svelte"),
  sql: () => import("./SqlPage.svelte"),
  insights: () => import("./InsightsPage.svelte"),
  tokens: () => import("./TokensPage.svelte"),
};

/** The browser keeps what was loaded once. */
export const loadPage = async (page: PageName): Promise<Component<PageProps>> =>
  (await loaders[page]()).default;
