/** Maximum number of edits between two sequences for which the longest common part is searched. */
const edits_max = 1_500;

/**
 * The longest common subsequence of two sequences of keys, as pairs of increasing indexes. Sequences with very little
 * in common get a common subsequence that need not be the longest, in bounded time.
 */
export function commonPlaces(a: readonly string[], b: readonly string[]): [number, number][] {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  const left = Math.min(a.length, b.length) - start;
  while (end < left && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const inner = between(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return [
    ...Array.from({ length: start }, (_, at): [number, number] => [at, at]),
    ...inner.map(([one, other]): [number, number] => [one + start, other + start]),
    ...Array.from({ length: end }, (_, at): [number, number] => [a.length - end + at, b.length - end + at]),
  ];
}

/** Myers' greedy search: `reached[k]` is how far in `a` the diagonal `k` got with the current number of edits. */
function between(a: readonly string[], b: readonly string[]): [number, number][] {
  if (a.length === 0 || b.length === 0) return [];
  const most = Math.min(edits_max, a.length + b.length);
  const reached = new Int32Array(2 * most + 3);
  const middle = most + 1;
  const trace: Int32Array[] = [];
  for (let edits = 0; edits <= most; edits += 1) {
    trace.push(reached.slice(middle - edits - 1, middle + edits + 2));
    for (let k = -edits; k <= edits; k += 2) {
      const isDown =
        k === -edits || (k !== edits && at(reached, middle + k - 1) < at(reached, middle + k + 1));
      let x = isDown ? at(reached, middle + k + 1) : at(reached, middle + k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      reached[middle + k] = x;
      if (x >= a.length && x - k >= b.length) return walkBack(trace, a, b);
    }
  }
  return inTurn(a, b);
}

const at = (numbers: Int32Array, index: number): number => numbers[index] as number;

function walkBack(
  trace: readonly Int32Array[],
  a: readonly string[],
  b: readonly string[],
): [number, number][] {
  const pairs: [number, number][] = [];
  let [x, y] = [a.length, b.length];
  for (let edits = trace.length - 1; edits >= 0; edits -= 1) {
    // What was reached before these edits; its middle is the diagonal 0.
    const reached = trace[edits] as Int32Array;
    const middle = edits + 1;
    const k = x - y;
    const isDown = k === -edits || (k !== edits && at(reached, middle + k - 1) < at(reached, middle + k + 1));
    const before_k = isDown ? k + 1 : k - 1;
    const before_x = edits === 0 ? 0 : at(reached, middle + before_k);
    const before_y = edits === 0 ? 0 : before_x - before_k;
    while (x > before_x && y > before_y) {
      x -= 1;
      y -= 1;
      pairs.push([x, y]);
    }
    [x, y] = [before_x, before_y];
  }
  return pairs.reverse();
}

/** Pairs each item of `a` with the next item of `b` that has its key. */
function inTurn(a: readonly string[], b: readonly string[]): [number, number][] {
  const places = new Map<string, number[]>();
  b.forEach((key, place) => {
    const known = places.get(key);
    if (known === undefined) places.set(key, [place]);
    else known.push(place);
  });
  const pairs: [number, number][] = [];
  const used = new Map<string, number>();
  let last = -1;
  a.forEach((key, place) => {
    const known = places.get(key) ?? [];
    let from = used.get(key) ?? 0;
    while (from < known.length && (known[from] as number) <= last) from += 1;
    used.set(key, from);
    const next = known[from];
    // A distant match would leave nothing for the items in between.
    if (next === undefined || next - last > edits_max) return;
    pairs.push([place, next]);
    last = next;
  });
  return pairs;
}
