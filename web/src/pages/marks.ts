import { spelled } from "../timeline/spelling";

/** A piece of a text: a hit, or what is between hits. */
export interface Piece {
  text: string;
  isHit: boolean;
}

const WORD = /[\p{L}\p{N}][\p{L}\p{N}\p{M}]*/gu;

/** The length of the part of a word that matches; 0 if it does not begin with a wanted word. */
function begun(word: string, wanted: readonly string[]): number {
  const whole = spelled(word);
  const longest = Math.max(0, ...wanted.filter((each) => whole.startsWith(each)).map((each) => each.length));
  if (longest === 0) return 0;
  let length = 0;
  for (const letter of word.match(/\P{M}\p{M}*/gu) ?? []) {
    length += letter.length;
    if (spelled(word.slice(0, length)).length >= longest) return length;
  }
  return word.length;
}

/** Marks where the words of a search begin in a text. A word that ends in `*` is the beginning of one. */
export function marked(text: string, q: string): Piece[] {
  const wanted = (q.match(WORD) ?? []).map(spelled);
  const pieces: Piece[] = [];
  let at = 0;
  for (const word of text.matchAll(WORD)) {
    const length = begun(word[0], wanted);
    if (length === 0) continue;
    if (word.index > at) pieces.push({ text: text.slice(at, word.index), isHit: false });
    at = word.index + length;
    pieces.push({ text: text.slice(word.index, at), isHit: true });
  }
  if (at < text.length || pieces.length === 0) pieces.push({ text: text.slice(at), isHit: false });
  return pieces;
}
