import { lexer, type Token } from "marked";

/** Longer texts are shown as they are: nobody reads them, and a hostile one must not hold the page up. */
const chars_max = 50_000;

/** The text's structure, or `null` where it is better shown as it is. It is drawn as elements, never as HTML. */
export function tokensOf(text: string): Token[] | null {
  if (text.length > chars_max) return null;
  try {
    return lexer(text, { gfm: true, breaks: true });
  } catch {
    // Thousands of nested quotes, say.
    return null;
  }
}

/** Whether a link may be followed: it leads to a page or an address, and runs nothing. */
export const isSafe = (href: string): boolean => /^(https?:|mailto:|\/(?!\/)|#)/i.test(href.trim());
