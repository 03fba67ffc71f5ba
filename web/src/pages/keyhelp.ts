/** The keys and what they do, for the dialog. */
export const keyHelp: readonly [string, string][] = [
  ["j, k or ↓, ↑", "next, previous row, of the runs too"],
  ["Enter", "open the row's detail; in the list the run"],
  ["Space, p", "in the list: look at the run beside it"],
  ["x, c", "in the list: select the run; compare the two that are selected"],
  ["Esc", "close the detail, leave the search"],
  ["←, →", "close, open a span"],
  ["/", "search (the browser's search misses rows that are not drawn)"],
  ["f", "follow the end, or stop following"],
  ["Home, End", "first row, last row"],
  ["e, E", "next, previous error"],
  ["w, s, a, d, 0", "zoom in, out, to the left, to the right, see all"],
  ["c, C, y", "copy the event as JSON, as curl; copy the link"],
  ["1 … 6", "Timeline, Log, Conversation, Artifacts, State, JSON"],
  ["Ctrl K, ⌘ K", "jump to a page, a run, a command"],
  ["?", "these keys"],
];
