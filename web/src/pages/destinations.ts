import type { PageName } from "./routes";

/** A page that the rail leads to. */
export interface Destination {
  href: string;
  name: string;
  /** Its icon, as a path in a square of 16. */
  drawing: string;
  /** The pages that it is the way to. */
  pages: readonly PageName[];
  /** Stands on a phone too; the others are in the palette there. */
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
    href: "/tokens",
    name: "API tokens",
    drawing: "M6 7.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5ZM8 8.5l5-5m-2 2 1.5 1.5",
    pages: ["tokens"],
  },
];
