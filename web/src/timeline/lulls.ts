import type { RunView } from "../feed/fold";
import type { Lull, Window } from "./geometry";

const cuts_max = 4;
/** A stretch is cut when it has this length, and this share of the window. */
const cut_ms_min = 20_000;
const cut_share_min = 0.2;

const buckets = 256;

/**
 * The stretches of a window that are worth cutting out: there is no event in them, and no span is at work. A span that
 * only waits for a person is not at work; the span of a worker always counts as being at work.
 */
export function cutsOf({ rows, spans }: Pick<RunView, "rows" | "spans">, window: Window): Lull[] {
  const least_ms = Math.max(cut_ms_min, (window.to_ms - window.from_ms) * cut_share_min);
  if (window.to_ms - window.from_ms < least_ms) return [];
  const busy = new Busy(window);
  for (const { at_ms } of rows) busy.add(at_ms, at_ms);
  const asked = spans.asked.filter(({ from_ms, to_ms }) => (to_ms ?? window.to_ms) - from_ms >= least_ms);
  for (const span of spans.tree.spans) {
    if (span === spans.tree.root) continue;
    const end_ms = span.end_ms ?? window.to_ms;
    const waits = span.kind === "worker" ? [] : asked.filter(({ from_ms }) => overlaps(span, from_ms));
    let from_ms = span.start_ms;
    for (const wait of waits.length === 0 ? waits : spans.heldIn(span, window.to_ms)) {
      busy.add(from_ms, wait.from_ms);
      from_ms = wait.to_ms ?? window.to_ms;
    }
    busy.add(from_ms, end_ms);
  }
  const isWait = ({ from_ms, to_ms }: Lull) =>
    spans.pauses.some((pause) => pause.from_ms < to_ms && (pause.to_ms ?? Infinity) > from_ms);
  return busy
    .lulls(least_ms)
    .sort((a, b) => b.to_ms - b.from_ms - (a.to_ms - a.from_ms))
    .slice(0, cuts_max)
    .sort((a, b) => a.from_ms - b.from_ms)
    .map((lull) => ({ ...lull, isWait: isWait(lull) }));
}

const overlaps = ({ start_ms, end_ms }: { start_ms: number; end_ms: number | null }, ms: number) =>
  start_ms <= ms && (end_ms ?? Infinity) > ms;

/** The times in which something was at work. Of each bucket, the first and the last such time is enough. */
class Busy {
  readonly #window: Window;
  readonly #firsts = new Float64Array(buckets).fill(Infinity);
  readonly #lasts = new Float64Array(buckets).fill(-Infinity);
  /** By how much the number of stretches that cover a whole bucket differs from that of the one before it. */
  readonly #more = new Int32Array(buckets + 1);

  constructor(window: Window) {
    this.#window = window;
  }

  add(from_ms: number, to_ms: number): void {
    const { from_ms: begin, to_ms: end } = this.#window;
    if (to_ms < from_ms || to_ms < begin || from_ms > end) return;
    const [first, last] = [Math.max(from_ms, begin), Math.min(to_ms, end)];
    const [at, until] = [this.#bucketOf(first), this.#bucketOf(last)];
    this.#firsts[at] = Math.min(this.#firsts[at] as number, first);
    this.#lasts[until] = Math.max(this.#lasts[until] as number, last);
    if (at === until) {
      this.#lasts[at] = Math.max(this.#lasts[at] as number, last);
      return;
    }
    this.#lasts[at] = Math.max(this.#lasts[at] as number, this.#edge(at + 1));
    this.#firsts[until] = Math.min(this.#firsts[until] as number, this.#edge(until));
    this.#more[at + 1] = (this.#more[at + 1] as number) + 1;
    this.#more[until] = (this.#more[until] as number) - 1;
  }

  /** The stretches between such times that are at least this long. */
  lulls(least_ms: number): Lull[] {
    const lulls: Lull[] = [];
    let from_ms = this.#window.from_ms;
    let covering = 0;
    for (let at = 0; at < buckets; at += 1) {
      covering += this.#more[at] as number;
      const first = covering > 0 ? this.#edge(at) : (this.#firsts[at] as number);
      if (first === Infinity) continue;
      if (first - from_ms >= least_ms) lulls.push({ from_ms, to_ms: first });
      from_ms = covering > 0 ? this.#edge(at + 1) : (this.#lasts[at] as number);
    }
    return lulls;
  }

  #bucketOf(ms: number): number {
    const { from_ms, to_ms } = this.#window;
    return Math.min(buckets - 1, Math.floor(((ms - from_ms) / (to_ms - from_ms)) * buckets));
  }

  #edge(bucket: number): number {
    const { from_ms, to_ms } = this.#window;
    return from_ms + (bucket / buckets) * (to_ms - from_ms);
  }
}
