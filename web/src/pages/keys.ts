/** Single keys are commands unless somebody is writing. */
export function isWriting(event: KeyboardEvent): boolean {
  if (event.metaKey || event.ctrlKey || event.altKey) return true;
  const target = event.target as HTMLElement | null;
  return target?.closest?.("input, textarea, select, dialog, [contenteditable]") !== null;
}

export const keyHelp: readonly [string, string][] = [
  ["j, k or ↓, ↑", "next, previous row"],
  ["Enter", "open the row's detail"],
  ["Esc", "close the detail, leave the search"],
  ["←, →", "close, open a span"],
  ["/", "search (the browser's search misses rows that are not drawn)"],
  ["f", "follow the end, or stop following"],
  ["Home, End", "first row, last row"],
  ["1 … 4", "Timeline, Log, Output, JSON"],
  ["Ctrl K, ⌘ K", "jump to a page, a run, a command"],
  ["?", "these keys"],
];
