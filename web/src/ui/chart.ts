/** A series of a chart; null is unknown and is not drawn. */
export interface Series {
  name: string;
  values: readonly (number | null)[];
  /** The CSS variable of its colour; by default the next of the chart's own. */
  colour?: string;
}

const colours = [
  "--bar-step",
  "--bar-worker",
  "--bar-tool",
  "--bar-message",
  "--bar-other",
  "--bar-reasoning",
];

export const colourOf = ({ colour }: Series, at: number): string =>
  `var(${colour ?? colours[at % colours.length] ?? "--bar-other"})`;

/** Round numbers that cover the range from `least` to `most`, 0 included. */
export function ticksOf(least: number, most: number, wanted: number): number[] {
  const low = Math.min(0, least);
  const high = Math.max(0, most);
  if (high === low) return [0, 1];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((each) => each * power >= rough) ?? 10) * power;
  const first = Math.floor(low / step);
  const last = Math.ceil(high / step);
  return Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step);
}

/** The minimum and the maximum of the values; if stacked, the maximum of a stack. */
export function boundsOf(series: readonly Series[], isStacked: boolean): [number, number] {
  let [least, most] = [0, 0];
  const length = Math.max(0, ...series.map(({ values }) => values.length));
  for (let at = 0; at < length; at += 1) {
    const here = series.map(({ values }) => values[at] ?? 0);
    const pile = here.reduce((sum, value) => sum + Math.max(0, value), 0);
    least = Math.min(least, ...here);
    most = Math.max(most, isStacked ? pile : Math.max(...here));
  }
  return [least, most];
}

/** The step between labels at which they fit on the axis. */
export function shownEvery(count: number, width_px: number, label_px: number): number {
  return Math.max(1, Math.ceil((count * label_px) / Math.max(1, width_px)));
}
