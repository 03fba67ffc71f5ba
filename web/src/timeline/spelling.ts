/**
 * A text normalised like words in the server's search: by NFKC and full case folding; the Turkish İ and ı become i.
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
