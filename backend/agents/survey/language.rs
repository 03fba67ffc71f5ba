//! Languages by file extension, with as much of their spelling as counting needs.

use std::path::Path;

/// How a language marks the body of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// Between braces, after a header in the manner of this family.
    Braces(Family),
    /// By indentation.
    Indent,
    /// Functions are not looked for.
    None,
}

/// Which headers are a function's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Rust,
    Go,
    Script,
    C,
}

/// Which quotes are what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quotes {
    /// `"…"`, and `'…'` for one character at most.
    C,
    /// As C, with raw strings, and `'` also before a lifetime.
    Rust,
    /// As C, with raw strings between backticks.
    Go,
    /// `"…"`, `'…'`, templates between backticks, regular expressions.
    Script,
    /// `"…"`, `'…'` and both tripled.
    Python,
    /// `"…"` and `'…'`.
    Plain,
    /// None: prose and data.
    None,
}

/// What is known about a language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language {
    pub name: &'static str,
    /// What begins a comment that ends with its line.
    pub line_comments: &'static [&'static str],
    /// What a comment over several lines stands between.
    pub block_comment: Option<(&'static str, &'static str)>,
    pub quotes: Quotes,
    pub bodies: Bodies,
    /// Written by people in lines that mean something: looked at for duplicated blocks.
    pub code: bool,
}

const SLASHES: &[&str] = &["//"];
const HASH: &[&str] = &["#"];
const STARS: Option<(&str, &str)> = Some(("/*", "*/"));

const fn code(name: &'static str, quotes: Quotes, bodies: Bodies) -> Language {
    Language { name, line_comments: SLASHES, block_comment: STARS, quotes, bodies, code: true }
}

const fn hashed(name: &'static str, bodies: Bodies, quotes: Quotes, code: bool) -> Language {
    Language { name, line_comments: HASH, block_comment: None, quotes, bodies, code }
}

const fn text(name: &'static str) -> Language {
    Language { name, line_comments: &[], block_comment: None, quotes: Quotes::None, bodies: Bodies::None, code: false }
}

const SCRIPT: Bodies = Bodies::Braces(Family::Script);
const C_LIKE: Bodies = Bodies::Braces(Family::C);

/// Extensions in lower case, and the language they stand for.
const LANGUAGES: &[(&[&str], Language)] = &[
    (&["rs"], code("Rust", Quotes::Rust, Bodies::Braces(Family::Rust))),
    (&["ts", "tsx", "mts", "cts"], code("TypeScript", Quotes::Script, SCRIPT)),
    (&["js", "jsx", "mjs", "cjs"], code("JavaScript", Quotes::Script, SCRIPT)),
    (&["py", "pyi"], hashed("Python", Bodies::Indent, Quotes::Python, true)),
    (&["go"], code("Go", Quotes::Go, Bodies::Braces(Family::Go))),
    (&["java"], code("Java", Quotes::C, C_LIKE)),
    (&["c", "h"], code("C", Quotes::C, C_LIKE)),
    (&["cc", "cpp", "cxx", "hpp", "hh"], code("C++", Quotes::C, C_LIKE)),
    (&["cs"], code("C#", Quotes::C, Bodies::None)),
    (&["kt", "kts"], code("Kotlin", Quotes::C, Bodies::None)),
    (&["swift"], code("Swift", Quotes::Plain, Bodies::None)),
    (&["css", "scss"], Language { line_comments: &[], ..code("CSS", Quotes::Plain, Bodies::None) }),
    (&["proto"], code("Protobuf", Quotes::Plain, Bodies::None)),
    (&["rb"], hashed("Ruby", Bodies::None, Quotes::Plain, true)),
    (&["sh", "bash", "zsh"], hashed("Shell", Bodies::None, Quotes::None, true)),
    (&["toml"], hashed("TOML", Bodies::None, Quotes::Plain, false)),
    (&["yaml", "yml"], hashed("YAML", Bodies::None, Quotes::None, false)),
    (
        &["sql"],
        Language { line_comments: &["--"], block_comment: STARS, quotes: Quotes::Plain, code: true, ..text("SQL") },
    ),
    (&["html", "htm", "xml", "svg"], Language { block_comment: Some(("<!--", "-->")), ..text("HTML/XML") }),
    (
        &["svelte", "vue"],
        Language { line_comments: SLASHES, block_comment: Some(("<!--", "-->")), code: true, ..text("Svelte/Vue") },
    ),
    (&["md", "markdown"], text("Markdown")),
    (&["json", "jsonl"], text("JSON")),
    (&["txt", "rst", "adoc"], text("Text")),
];

const OTHER: Language = text("Other");

/// The language of a file, by its extension alone.
pub fn of(path: &str) -> Language {
    let extension = Path::new(path).extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
    let known = LANGUAGES.iter().find(|(extensions, _)| extensions.contains(&extension.as_str()));
    known.map_or(OTHER, |(_, language)| *language)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_known_by_its_extension_in_any_case() {
        assert_eq!(of("a/b.RS").name, "Rust");
        assert_eq!(of("x.test.tsx").name, "TypeScript");
        assert_eq!(of("Makefile").name, "Other");
        assert_eq!(of(".gitignore").name, "Other");
    }
}
