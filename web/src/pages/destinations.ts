import type { PageName } from "./routes";

/** A page that the rail leads to. */
export interface Destination {
  href: string;
  name: string;
  icon: string;
  /** The pages that it is the way to. */
  pages: readonly PageName[];
}

export const destinations: readonly Destination[] = [
  { href: "/", name: "Runs", icon: "runs", pages: ["runs", "run"] },
  { href: "/inbox", name: "Inbox", icon: "inbox", pages: ["inbox"] },
  { href: "/tokens", name: "API tokens", icon: "key", pages: ["tokens"] },
];
