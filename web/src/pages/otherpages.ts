import type { Loader } from "./loader";
import type { PageName } from "./routes";

/** The pages that are not opened first, with the names of their files. */
export const otherPages: Record<Exclude<PageName, "runs" | "run">, Loader> = {
  compare: () => import("./ComparePage.svelte"),
  threads: () => import("./ThreadsPage.svelte"),
  thread: () => import("./ThreadPage.svelte"),
  inbox: () => import("./InboxPage.svelte"),
  sessions: () => import("./SessionsPage.svelte"),
  session: () => import("./SessionPage.svelte"),
  artifacts: () => import("./ArtifactsPage.svelte"),
  sql: () => import("./SqlPage.svelte"),
  insights: () => import("./InsightsPage.svelte"),
  agents: () => import("./AgentsPage.svelte"),
  settings: () => import("./SettingsPage.svelte"),
  tokens: () => import("./TokensPage.svelte"),
};
