import fc from "fast-check";
import { expect, test } from "vitest";
import { marked } from "./marks";

const hits = (text: string, q: string) =>
  marked(text, q)
    .filter((piece) => piece.isHit)
    .map((piece) => piece.text);

test("words are marked where they begin, whatever their case", () => {
  expect(hits("429 Too Many; too_many, 4290", "too 429*")).toEqual(["429", "Too", "too", "429"]);
  expect(hits("a.b", "")).toEqual([]);
  expect(hits("price: 1 (net)", "(net")).toEqual(["net"]);
});

test("words that look the same are marked in every spelling", () => {
  expect(hits("Straßen, re\u0301sume\u0301s, ΟΔΟΣ, İzmir, ﬁle", "STRASSE résumé οδος izmir fil")).toEqual([
    "Straße",
    "re\u0301sume\u0301",
    "ΟΔΟΣ",
    "İzmir",
    "ﬁl",
  ]);
  expect(hits("résumé", "resume")).toEqual([]);
});

test("the pieces are the text, whatever is searched for", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), fc.string({ unit: "grapheme" }), (text, q) => {
      expect(
        marked(text, q)
          .map((piece) => piece.text)
          .join(""),
      ).toBe(text);
    }),
  );
});
