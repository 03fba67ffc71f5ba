/**
 * A text as the server's search spells words: equivalent in Unicode and in any case is the same (NFKC, full case folding; the
 * Turkish İ and ı are i).
 */
export const spelled = (text: string): string =>
  text
    .normalize("NFKC")
    .replaceAll(/[İı]/g, "i")
    .toLowerCase()
    .toUpperCase()
    .toLowerCase()
    .replaceAll("ς", "σ")
    .normalize("NFC");
