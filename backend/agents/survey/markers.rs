//! Notes of unfinished work that people leave in comments.

use serde::{Deserialize, Serialize};

use super::{
    language::Language,
    lexer::{Kind, is_word},
};

/// The words looked for. They are put together here so that this file is not its own finding.
pub const MARKERS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// Characters kept of a marker's line.
const TEXT_CHARS_MAX: usize = 160;

/// One marker and its line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    pub path: String,
    pub line: usize,
    pub word: String,
    pub text: String,
}

/// All markers of a file: whole words in capitals, in comments only where the language has them.
pub fn find(path: &str, source: &[u8], kinds: &[Kind], language: &Language) -> Vec<Marker> {
    let anywhere = language.line_comments.is_empty() && language.block_comment.is_none();
    let (mut found, mut at) = (Vec::new(), 0);
    for (index, line) in source.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let kinds = &kinds[at..at + line.len()];
        at += line.len();
        let fits = |start: usize| anywhere || kinds[start] == Kind::Comment;
        for word in MARKERS {
            if words(line, word.as_bytes()).any(fits) {
                let text = String::from_utf8_lossy(line).trim().chars().take(TEXT_CHARS_MAX).collect();
                found.push(Marker { path: path.to_owned(), line: index + 1, word: word.to_owned(), text });
            }
        }
    }
    found
}

/// Where a word stands as a whole.
fn words<'a>(line: &'a [u8], word: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let starts = line.windows(word.len()).enumerate().filter(move |(_, window)| *window == word);
    starts.map(|(start, _)| start).filter(move |start| {
        let (before, after) = (start.checked_sub(1).map(|at| line[at]), line.get(start + word.len()).copied());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::survey::{language, lexer};

    fn lines(path: &str, source: &str) -> Vec<usize> {
        let language = language::of(path);
        let kinds = lexer::kinds(source.as_bytes(), &language);
        find(path, source.as_bytes(), &kinds, &language).iter().map(|marker| marker.line).collect()
    }

    #[test]
    fn a_marker_is_a_whole_word_in_a_comment() {
        let [a, b] = MARKERS;
        assert_eq!(lines("a.rs", &format!("// {a}: x\nlet {a} = \"{b}\";\n/* ({b}) */ // {a}S\n")), [1, 3]);
        assert_eq!(lines("a.md", &format!("- {a} write\n- {}\n", a.to_lowercase())), [1]);
    }
}
