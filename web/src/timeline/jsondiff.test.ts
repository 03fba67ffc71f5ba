import fc from "fast-check";
import { expect, test } from "vitest";
import { diffJson, diffWords, type DiffNode } from "./jsondiff";

/** The differences, by path. */
function changes(node: DiffNode, path = ""): string[] {
  if (node.state === "same") return [];
  const here = node.name === null ? "" : `${path}/${node.name}`;
  if (node.children !== null) return node.children.flatMap((child) => changes(child, here));
  return [`${here} ${node.state}`];
}

test("members are compared by their names, entries of lists by what they are", () => {
  const a = { to: "LIS", days: [1, 2, 3], same: { x: 1, y: null }, gone: true };
  const b = { days: [1, 3, 4], to: "OPO", same: { y: null, x: 1 }, late: false };
  expect(changes(diffJson(a, b))).toEqual([
    "/to changed",
    "/days/1 removed",
    "/days/2 added",
    "/gone removed",
    "/late added",
  ]);
  expect(changes(diffJson([{ id: 1 }, 2], [{ id: 2 }, 2]))).toEqual(["/0/id changed"]);
  expect(changes(diffJson({ a: undefined }, { a: 1 }))).toEqual(["/a changed"]);
  expect(changes(diffJson([1], { 0: 1 }))).toEqual([" changed"]);
});

/** One of the two values, rebuilt from the comparison. */
function side(node: DiffNode, of: "a" | "b"): unknown {
  if (node.children === null) return node[of];
  const missing = of === "a" ? "added" : "removed";
  const members = node.children.filter((child) => child.state !== missing);
  if (Array.isArray(node[of])) return members.map((child) => side(child, of));
  return Object.fromEntries(members.map((child) => [child.name, side(child, of)]));
}

test("both values are in what was compared, and values that are equal have no difference", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.jsonValue(), (a, b) => {
      const plain = (value: unknown) => JSON.parse(JSON.stringify(value)) as unknown;
      const [one, other] = [plain(a), plain(b)];
      const node = diffJson(one, other);
      expect(side(node, "a")).toEqual(one);
      expect(side(node, "b")).toEqual(other);
      expect(changes(diffJson(one, plain(a)))).toEqual([]);
    }),
  );
});

test("texts are compared by words, and both can be read from it", () => {
  expect(diffWords("Fly on Saturday for 128 €.", "Fly on Sunday for 143 €.")).toEqual([
    { text: "Fly on ", of: "both" },
    { text: "Saturday", of: "a" },
    { text: "Sunday", of: "b" },
    { text: " for ", of: "both" },
    { text: "128", of: "a" },
    { text: "143", of: "b" },
    { text: " €.", of: "both" },
  ]);
  const texts = fc
    .array(fc.constantFrom("a", "b ", "\n", "é", "."), { maxLength: 20 })
    .map((all) => all.join(""));
  fc.assert(
    fc.property(texts, texts, (a, b) => {
      const words = diffWords(a, b) ?? [];
      const read = (of: "a" | "b") =>
        words
          .filter((piece) => piece.of === of || piece.of === "both")
          .map((piece) => piece.text)
          .join("");
      expect([read("a"), read("b")]).toEqual([a, b]);
    }),
  );
});

test("texts that are too long are not compared by words", () => {
  expect(diffWords("a b ".repeat(5_000), "c")).toBeNull();
});
