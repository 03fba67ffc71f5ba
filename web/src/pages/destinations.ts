import type { PageName } from "./routes";

/** A page that the rail leads to. */
export interface Destination {
  href: string;
  name: string;
  /** Its icon, as a path in a square of 16. */
  drawing: string;
  /** The pages for which it is marked as current. */
  pages: readonly PageName[];
  /** Shown on a phone as well; there the others are in the palette. */
  isFirst?: boolean;
}

export const destinations: readonly Destination[] = [
  {
    href: "/",
    name: "Runs",
    drawing: "M2.5 4h7M5 8h8.5M2.5 12h5",
    pages: ["runs", "run", "compare"],
    isFirst: true,
  },
  {
    href: "/threads",
    name: "Threads",
    drawing: "M2.5 3h8v6h-5l-3 2.5ZM12.5 6h1v7.5L11 11.5H7",
    pages: ["threads", "thread"],
  },
  {
    href: "/inbox",
    name: "Inbox",
    drawing: "M2.5 9.5h3l1 2h3l1-2h3M4 3.5h8l1.5 6v3h-11v-3Z",
    pages: ["inbox"],
    isFirst: true,
  },
  {
    href: "/sessions",
    name: "Sessions",
    drawing: "M2.5 3.5h11v7h-6l-3 2.5v-2.5h-2ZM5 6h6M5 8.2h4",
    pages: ["sessions", "session"],
  },
  {
    href: "/artifacts",
    name: "Artifacts",
    drawing: "M2.5 3.5h11v9h-11ZM2.5 10.5l3-3 3 3 2-2 3 3M10.5 6h.1",
    pages: ["artifacts"],
  },
  {
    href: "/sql",
    name: "SQL",
    drawing: "M3 4.5c0-2.7 10-2.7 10 0v7c0 2.7-10 2.7-10 0ZM3 4.5c0 2.7 10 2.7 10 0M3 8c0 2.7 10 2.7 10 0",
    pages: ["sql"],
    isFirst: true,
  },
  {
    href: "/insights",
    name: "Insights",
    drawing: "M2.5 13.5h11M4.5 11V8M8 11V4M11.5 11V6.5",
    pages: ["insights"],
  },
  {
    href: "/agents",
    name: "Agents",
    drawing: "M4 6h8v6.5H4ZM8 6V3.5M8 3.2h.1M6.5 9h.1M9.5 9h.1M2.5 8.5v2M13.5 8.5v2",
    pages: ["agents"],
  },
  {
    href: "/settings",
    name: "Settings",
    drawing: "M2.5 5h6M11.5 5h2M2.5 11h2M7.5 11h6M10 3.5v3M6 9.5v3",
    pages: ["settings", "tokens"],
  },
];
