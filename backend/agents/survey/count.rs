//! Lines: how many, and how many of them are blank, comment or code.

use serde::{Deserialize, Serialize};

use super::lexer::Kind;

/// Counts of lines. A line with both code and a comment is code; `total = blank + comment + code`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    pub total: u64,
    pub blank: u64,
    pub comment: u64,
    pub code: u64,
}

impl Lines {
    /// Counts one file. The last line counts whether or not it ends with a line end.
    pub fn of(source: &[u8], kinds: &[Kind]) -> Self {
        let mut lines = Self::default();
        let mut at = 0;
        for line in source.split_inclusive(|byte| *byte == b'\n') {
            let span = at..at + line.len();
            at = span.end;
            let seen = || line.iter().zip(&kinds[span.clone()]).filter(|(byte, _)| !byte.is_ascii_whitespace());
            lines.total += 1;
            if seen().next().is_none() {
                lines.blank += 1;
            } else if seen().all(|(_, kind)| *kind == Kind::Comment) {
                lines.comment += 1;
            } else {
                lines.code += 1;
            }
        }
        lines
    }

    pub fn add(&mut self, other: Self) {
        self.total += other.total;
        self.blank += other.blank;
        self.comment += other.comment;
        self.code += other.code;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::survey::{language, lexer};

    fn check(path: &str, source: &str, expected: [u64; 4]) {
        let lines = Lines::of(source.as_bytes(), &lexer::kinds(source.as_bytes(), &language::of(path)));
        assert_eq!([lines.total, lines.blank, lines.comment, lines.code], expected, "{path}: {source:?}");
    }

    #[test]
    fn every_line_is_blank_comment_or_code() {
        check("a.rs", "", [0, 0, 0, 0]);
        check("a.rs", "\n", [1, 1, 0, 0]);
        check("a.rs", "fn a() {} // x\n// y\n\n/* z\n\n*/\nlet s = \"\n// no\";", [8, 2, 3, 3]);
        check("a.py", "# a\n\"\"\"doc\n# in it\n\"\"\"\nx = 1\n", [5, 0, 1, 4]);
        check("a.md", "# Title\n\ntext", [3, 1, 0, 2]);
    }
}
