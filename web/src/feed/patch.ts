import { fields } from "@runreel/client/fold";

/** Maximum number of values of a state: copies can grow it without end, and each value is visited. */
const values_max = 1_000_000;
/** A text counts as one more value for each of so many characters. */
const text_chars = 16;

/** The value after a JSON Patch (RFC 6902); throws where the patch does not fit. The value itself is not changed. */
export function patched(value: unknown, patch: unknown): unknown {
  if (!Array.isArray(patch)) throw new Error("no list of operations");
  const size = sizes();
  return patch.reduce((now: unknown, operation: unknown) => {
    const next = one(now, fields(operation));
    if (size(next) > values_max) throw new Error("the result would be too large");
    return next;
  }, value);
}

/** Counts the values in a value, with long texts as several. The count of an object is cached. */
function sizes(): (value: unknown) => number {
  const known = new WeakMap<object, number>();
  const size = (value: unknown): number => {
    if (typeof value === "string") return 1 + Math.floor(value.length / text_chars);
    if (typeof value !== "object" || value === null) return 1;
    const before = known.get(value);
    if (before !== undefined) return before;
    const found = Object.values(value).reduce((sum: number, each) => sum + size(each), 1);
    known.set(value, found);
    return found;
  };
  return size;
}

function one(value: unknown, { op, path, from, value: given }: Record<string, unknown>): unknown {
  const at = pointer(path);
  switch (op) {
    case "add":
      return placed(value, at, given, true);
    case "replace":
      find(value, at);
      return placed(value, at, given, false);
    case "remove":
      find(value, at);
      return removed(value, at);
    case "copy":
      return placed(value, at, find(value, pointer(from)), true);
    case "move":
      return placed(removed(value, pointer(from)), at, find(value, pointer(from)), true);
    case "test":
      if (JSON.stringify(find(value, at)) !== JSON.stringify(given))
        throw new Error(`another value at ${path}`);
      return value;
  }
  throw new Error(`an operation ${String(op)}`);
}

function pointer(path: unknown): string[] {
  if (typeof path !== "string") throw new Error("no path");
  const parts = path.split("/").slice(1);
  return parts.map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function find(value: unknown, path: readonly string[]): unknown {
  let at = value;
  for (const name of path) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, name))
      throw new Error(`nothing at ${name}`);
    at = (at as Record<string, unknown>)[name];
  }
  return at;
}

function placed(value: unknown, [name, ...rest]: string[], given: unknown, isAdded: boolean): unknown {
  if (name === undefined) return given;
  if (Array.isArray(value)) {
    const index = name === "-" ? value.length : Number(name);
    if (!(index >= 0 && index <= value.length)) throw new Error(`no place ${name}`);
    if (rest.length > 0) return value.with(index, placed(value[index], rest, given, isAdded));
    return value.toSpliced(index, isAdded ? 0 : 1, given);
  }
  if (typeof value !== "object" || value === null) throw new Error(`no member ${name}`);
  const member = rest.length > 0 ? find(value, [name]) : undefined;
  return Object.fromEntries([
    ...Object.entries(value).filter(([other]) => other !== name),
    [name, placed(member, rest, given, isAdded)],
  ]);
}

function removed(value: unknown, path: readonly string[]): unknown {
  const [name, ...rest] = path;
  if (name === undefined) return null;
  if (Array.isArray(value)) {
    if (rest.length > 0) return value.with(Number(name), removed(value[Number(name)], rest));
    return value.toSpliced(Number(name), 1);
  }
  const members = Object.entries(value as object);
  if (rest.length === 0) return Object.fromEntries(members.filter(([other]) => other !== name));
  return Object.fromEntries(
    members.map(([other, each]) => [other, other === name ? removed(each, rest) : each]),
  );
}
