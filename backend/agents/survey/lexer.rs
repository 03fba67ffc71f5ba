//! Tells code from comments and from text in quotes, byte by byte.
//!
//! This is no parser: it knows how each family of languages writes comments and quotes, and nothing else. Where a
//! language is ambiguous without a parser it guesses as people read: in JavaScript a slash begins a regular expression
//! when what stands before it cannot end a value; a template is text up to its closing backtick, with what it holds
//! in `${…}`; a `'` in Rust begins a character only when the closing `'` is where one character would end.

use super::language::{Language, Quotes};

/// What one byte belongs to. Line ends belong to what they stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Code,
    Comment,
    /// In quotes, the quotes included.
    Text,
}

/// The kind of every byte of `source`.
pub fn kinds(source: &[u8], language: &Language) -> Vec<Kind> {
    let mut lexer = Lexer { source, language, kinds: Vec::with_capacity(source.len()), before: b'\n' };
    while lexer.at() < source.len() {
        lexer.step();
    }
    lexer.kinds
}

/// `source` with spaces in place of comments and `"` in place of text, so that braces and words in it are code's.
pub fn masked(source: &[u8], kinds: &[Kind]) -> Vec<u8> {
    let mask = |(&byte, kind): (&u8, &Kind)| match kind {
        _ if byte == b'\n' => b'\n',
        Kind::Code => byte,
        Kind::Comment => b' ',
        Kind::Text => b'"',
    };
    source.iter().zip(kinds).map(mask).collect()
}

struct Lexer<'a> {
    source: &'a [u8],
    language: &'a Language,
    kinds: Vec<Kind>,
    /// The last byte of code that is no space.
    before: u8,
}

impl Lexer<'_> {
    fn at(&self) -> usize {
        self.kinds.len()
    }

    fn rest(&self) -> &[u8] {
        &self.source[self.at()..]
    }

    fn take(&mut self, bytes: usize, kind: Kind) {
        let end = (self.at() + bytes).min(self.source.len());
        self.kinds.resize(end, kind);
    }

    fn step(&mut self) {
        if self.comment() || self.text() {
            return;
        }
        let byte = self.source[self.at()];
        if !byte.is_ascii_whitespace() {
            self.before = byte;
        }
        self.take(1, Kind::Code);
    }

    fn comment(&mut self) -> bool {
        let rest = self.rest();
        if self.language.line_comments.iter().any(|mark| rest.starts_with(mark.as_bytes())) {
            // Where quotes mean nothing, `$#`, `a#b` and `https://` stand in the open; a comment stands apart.
            let joined = self.at() > 0 && !self.source[self.at() - 1].is_ascii_whitespace();
            if !(joined && self.language.quotes == Quotes::None) {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                self.take(end, Kind::Comment);
                return true;
            }
        }
        match self.language.block_comment {
            Some((open, close)) if rest.starts_with(open.as_bytes()) => {
                let end = block_end(rest, open.as_bytes(), close.as_bytes(), self.language.quotes == Quotes::Rust);
                self.take(end, Kind::Comment);
                true
            }
            _ => false,
        }
    }

    fn text(&mut self) -> bool {
        let rest = self.rest();
        let bytes = match (self.language.quotes, rest[0]) {
            (Quotes::None, _) => None,
            (Quotes::Python, b'"' | b'\'') if rest.len() > 2 && rest[1] == rest[0] && rest[2] == rest[0] => {
                Some(quoted(rest, 3, true))
            }
            (Quotes::Go | Quotes::Script, b'`') | (Quotes::Rust, b'"') => Some(quoted(rest, 1, true)),
            (Quotes::Rust, b'r') if !is_word(self.before) => raw(rest),
            (Quotes::C | Quotes::Rust | Quotes::Go, b'\'') => character(rest),
            (Quotes::Script, b'/') => self.pattern(rest),
            (_, b'"') | (Quotes::Script | Quotes::Python | Quotes::Plain, b'\'') => Some(quoted(rest, 1, false)),
            _ => None,
        };
        if let Some(bytes) = bytes {
            self.take(bytes, Kind::Text);
            self.before = b'"';
        }
        bytes.is_some()
    }

    /// A regular expression, where a division cannot stand.
    fn pattern(&self, rest: &[u8]) -> Option<usize> {
        if !b"(,=:[!&|?{};+-*%<>~\n".contains(&self.before) {
            return None;
        }
        let mut class = false;
        let mut at = 1;
        loop {
            match rest.get(at)? {
                b'\n' => return None,
                b'\\' => at += 1,
                b'[' => class = true,
                b']' => class = false,
                b'/' if !class => return Some(at + 1),
                _ => {}
            }
            at += 1;
        }
    }
}

/// Bytes of a block comment; in Rust they nest. One that never ends takes the rest.
fn block_end(rest: &[u8], open: &[u8], close: &[u8], nests: bool) -> usize {
    let (mut depth, mut at) = (1, open.len());
    while at < rest.len() {
        if rest[at..].starts_with(close) {
            (depth, at) = (depth - 1, at + close.len());
            if depth == 0 {
                return at;
            }
        } else if nests && rest[at..].starts_with(open) {
            (depth, at) = (depth + 1, at + open.len());
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Bytes from an opening quote, `width` bytes wide, to behind the closing one. A text that may not go over lines ends
/// where its line does: its quote was an apostrophe, or the file is broken there.
fn quoted(rest: &[u8], width: usize, over_lines: bool) -> usize {
    let quote = &rest[..width];
    let mut at = width;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 1,
            b'\n' if !over_lines => return at,
            _ if rest[at..].starts_with(quote) => return at + width,
            _ => {}
        }
        at += 1;
    }
    rest.len()
}

/// A raw string of Rust: `r"…"`, `r#"…"#`.
fn raw(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &rest[hashes + 2..];
    let end = body.windows(close.len()).position(|window| window == close);
    Some(end.map_or(rest.len(), |end| hashes + 2 + end + close.len()))
}

/// A character between `'` and `'`; a lifetime or an apostrophe is none.
fn character(rest: &[u8]) -> Option<usize> {
    let end = match rest.get(1)? {
        b'\\' => 3 + rest.iter().skip(3).take(10).position(|byte| *byte == b'\'')?,
        b'\'' | b'\n' => return None,
        first => 1 + char_bytes(*first),
    };
    (rest.get(end) == Some(&b'\'')).then_some(end + 1)
}

/// Bytes of a UTF-8 character, by its first one.
fn char_bytes(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

/// Part of an identifier.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::survey::language;

    fn check(path: &str, source: &str, expected: &str) {
        let kinds = kinds(source.as_bytes(), &language::of(path));
        let shown = String::from_utf8(masked(source.as_bytes(), &kinds)).unwrap();
        assert_eq!(shown, expected, "{path}: {source}");
    }

    #[test]
    fn comments_and_text_are_told_from_code() {
        check("a.rs", "a /* x /* y */ { */ b // {", "a                   b     ");
        check("a.rs", r##"r#"{"#; '{' 'a &'a str"##, r#"""""""; """ 'a &'a str"#);
        check("a.rs", "\"a\\\"{\" b", "\"\"\"\"\"\" b");
        check("a.ts", "x = /[/{]/ ; y / 2 ; `{\n}`", "x = \"\"\"\"\"\" ; y / 2 ; \"\"\n\"\"");
        check("a.py", "d = '''{\n'x''' # it's", "d = \"\"\"\"\n\"\"\"\"\"       ");
        check("a.go", "`{\\`", "\"\"\"\"");
        check("a.c", "'{' don't \"//\"", "\"\"\" don't \"\"\"\"");
        check("a.sh", "echo $# # it", "echo $#     ");
        check("a.md", "it's \"{\"", "it's \"{\"");
    }

    #[test]
    fn whatever_the_bytes_are_every_one_gets_a_kind() {
        for source in ["'", "\"", "/*", "r#\"", "'\\", "`", "/", "\"\\", "'''", "é'é'", "'\\''"] {
            for path in ["a.rs", "a.ts", "a.py", "a.go", "a.c", "a.html"] {
                assert_eq!(kinds(source.as_bytes(), &language::of(path)).len(), source.len(), "{path}: {source}");
            }
        }
    }
}
