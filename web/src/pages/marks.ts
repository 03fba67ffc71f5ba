/** A text in pieces: what was searched for, and what lies between. */
export interface Piece {
  text: string;
  isHit: boolean;
}

/** Marks where the words of a search begin in a text. A word that ends in `*` is the beginning of one. */
export function marked(text: string, q: string): Piece[] {
  const words = q.match(/[\p{L}\p{N}]+/gu) ?? [];
  if (words.length === 0) return [{ text, isHit: false }];
  const found = new RegExp(`(?<![\\p{L}\\p{N}])(${words.join("|")})`, "giu");
  const pieces: Piece[] = [];
  let at = 0;
  for (const hit of text.matchAll(found)) {
    if (hit.index > at) pieces.push({ text: text.slice(at, hit.index), isHit: false });
    pieces.push({ text: hit[0], isHit: true });
    at = hit.index + hit[0].length;
  }
  if (at < text.length) pieces.push({ text: text.slice(at), isHit: false });
  return pieces;
}
