/** Which rows of a long list are in the DOM. All rows have one height, so this is arithmetic. */
export const rowHeight_px = 28;

/** Rows kept on either side of the visible ones, so that a fast scroll does not show a hole. */
const overscan_rows = 4;

/** Maximum number of rows in the DOM, however tall the screen is. */
const window_rows_max = 90;

export function rowsInView(
  top_px: number,
  height_px: number,
  count: number,
  row_px = rowHeight_px,
): { start: number; end: number } {
  const first = Math.floor(Math.max(0, top_px) / row_px);
  const seen = Math.ceil(height_px / row_px) + 1;
  const start = Math.max(0, Math.min(first, count) - overscan_rows);
  const end = Math.min(count, first + seen + overscan_rows, start + window_rows_max);
  return { start, end };
}

/** The scroll position that shows row `index` below a sticky header, moved as little as possible. */
export function topToShow(index: number, top_px: number, height_px: number, row_px = rowHeight_px): number {
  const row = index * row_px;
  if (row < top_px) return row;
  // The header takes one row of the height.
  const lowest = row + 2 * row_px - height_px;
  return lowest > top_px ? lowest : top_px;
}
