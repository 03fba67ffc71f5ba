import { lexer, type Token } from "marked";

/** Longer texts are shown unformatted, so that a hostile one cannot block the page. */
const chars_max = 50_000;

/** The text's tokens, or `null` if it is to be shown unformatted. They are drawn as elements, never as HTML. */
export function tokensOf(text: string): Token[] | null {
  if (text.length > chars_max) return null;
  try {
    return lexer(text, { gfm: true, breaks: true });
  } catch {
    // For example, thousands of nested quotes.
    return null;
  }
}

/** Whether a link may be followed: it leads to a page or a mail address, and runs no script. */
export const isSafe = (href: string): boolean => /^(https?:|mailto:|\/(?!\/)|#)/i.test(href.trim());
