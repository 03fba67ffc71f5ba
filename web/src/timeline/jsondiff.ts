import { commonPlaces } from "../feed/lcs";

/** Two values side by side; members that both have are compared recursively. */
export interface DiffNode {
  name: string | null;
  state: "same" | "changed" | "added" | "removed";
  a: unknown;
  b: unknown;
  /** The members of two objects, or two arrays, that differ. */
  children: DiffNode[] | null;
}

export const diffLimits = { depth: 40, members: 2_000, words: 3_000 };

const kindOf = (value: unknown): string =>
  Array.isArray(value) ? "array" : value === null ? "null" : typeof value;

export function diffJson(a: unknown, b: unknown, name: string | null = null, depth = 0): DiffNode {
  const kind = kindOf(a);
  if (isSame(a, b)) return { name, state: "same", a, b, children: null };
  const isInside = kind === kindOf(b) && (kind === "array" || kind === "object") && depth < diffLimits.depth;
  if (!isInside) return { name, state: "changed", a, b, children: null };
  const inside =
    kind === "array" ? entriesOf(a as unknown[], b as unknown[]) : membersOf(a as object, b as object);
  const children = inside
    .slice(0, diffLimits.members)
    .map(([name, one, other]) => diffOne(name, one, other, depth + 1));
  return { name, state: "changed", a, b, children };
}

/** A member that one of the two may not have. */
type Member = [string, unknown, unknown];
const absent = Symbol("absent");

function diffOne(name: string, a: unknown, b: unknown, depth: number): DiffNode {
  if (b === absent) return { name, state: "removed", a, b: undefined, children: null };
  if (a === absent) return { name, state: "added", a: undefined, b, children: null };
  return diffJson(a, b, name, depth);
}

function membersOf(a: object, b: object): Member[] {
  const [one, other] = [
    new Map<string, unknown>(Object.entries(a)),
    new Map<string, unknown>(Object.entries(b)),
  ];
  const names = [...one.keys(), ...[...other.keys()].filter((name) => !one.has(name))];
  const of = (map: Map<string, unknown>, name: string) => (map.has(name) ? map.get(name) : absent);
  return names.map((name) => [name, of(one, name), of(other, name)]);
}

/** Pairs entries that are equal; those in between are paired in order. */
function entriesOf(a: readonly unknown[], b: readonly unknown[]): Member[] {
  const pairs = commonPlaces(a.map(textOf), b.map(textOf));
  const members: Member[] = [];
  let [x, y] = [0, 0];
  for (const [nextX, nextY] of [...pairs, [a.length, b.length] as [number, number]]) {
    for (; x < nextX || y < nextY; x += 1, y += 1) {
      const [one, other] = [x < nextX ? a[x] : absent, y < nextY ? b[y] : absent];
      members.push([String(one === absent ? y : x), one, other]);
      if (x >= nextX) x -= 1;
      if (y >= nextY) y -= 1;
    }
    if (nextX < a.length) members.push([String(nextX), a[nextX], b[nextY]]);
    [x, y] = [nextX + 1, nextY + 1];
  }
  return members;
}

const isSame = (a: unknown, b: unknown): boolean => a === b || textOf(a) === textOf(b);

/** The value as a text in which the order of members has no meaning. */
function textOf(value: unknown): string {
  return (
    JSON.stringify(value, (_, inner: unknown) => {
      if (kindOf(inner) !== "object") return inner;
      return Object.fromEntries(
        Object.entries(inner as object).sort(([one], [other]) => (one < other ? -1 : 1)),
      );
    }) ?? "undefined"
  );
}

export interface Words {
  text: string;
  of: "both" | "a" | "b";
}

/** Two texts merged into pieces that both or only one of them has. `null` when they are too long for that. */
export function diffWords(a: string, b: string): Words[] | null {
  const [one, other] = [a, b].map((text) => text.match(/\s+|[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu) ?? []);
  if (one === undefined || other === undefined) return null;
  if (one.length > diffLimits.words || other.length > diffLimits.words) return null;
  const words: Words[] = [];
  // Changes with only white space between them are merged, to be readable.
  let [inA, inB, blank] = ["", "", ""];
  const change = (textA: string, textB: string) => {
    inA += blank + textA;
    inB += blank + textB;
    blank = "";
  };
  const end = (text: string) => {
    if (inA !== "") words.push({ text: inA, of: "a" });
    if (inB !== "") words.push({ text: inB, of: "b" });
    const last = words.at(-1);
    if (last?.of === "both") last.text += blank + text;
    else if (blank + text !== "") words.push({ text: blank + text, of: "both" });
    [inA, inB, blank] = ["", "", ""];
  };
  let [x, y] = [0, 0];
  for (const [nextX, nextY] of [
    ...commonPlaces(one, other),
    [one.length, other.length] as [number, number],
  ]) {
    if (nextX > x || nextY > y) change(one.slice(x, nextX).join(""), other.slice(y, nextY).join(""));
    const text = one[nextX] ?? "";
    if (/^\s+$/.test(text) && inA + inB !== "") blank += text;
    else if (text !== "") end(text);
    [x, y] = [nextX + 1, nextY + 1];
  }
  end("");
  return words;
}
