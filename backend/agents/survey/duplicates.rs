//! What stands in the tree more than once: whole files, and blocks of lines.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Shortest block that counts, normalised lines.
pub const BLOCK_LINES_MIN: usize = 6;
/// Most normalised lines that are compared; what comes after them is left out and the result says so.
pub const LINES_MAX: usize = 400_000;

/// Files with the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameFiles {
    pub sha256: String,
    pub bytes: u64,
    /// In the order of the tree; whoever lists them may list the first ones only.
    pub paths: Vec<String>,
}

/// A block of lines that stands in two places, as long as it could be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameBlock {
    /// Normalised lines in it.
    pub lines: usize,
    pub first: Place,
    pub again: Place,
}

/// The line a block begins in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub path: String,
    pub line: usize,
}

/// What was found: groups of files and blocks, the largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub files: Vec<SameFiles>,
    pub blocks: Vec<SameBlock>,
    /// Whether every line was looked at.
    pub complete: bool,
}

/// One line that is compared: its number and the hash of its text.
type Line = (usize, u64);
type Window = [u64; BLOCK_LINES_MIN];

/// Takes files one after the other; of each it keeps hashes and numbers only.
///
/// Files with the same bytes are one group; empty ones are not looked at. A block has at least [`BLOCK_LINES_MIN`]
/// lines that stood in an earlier place already. A line is compared without the white space around it; blank lines
/// and lines without a letter or digit (a closing brace) are passed over, so they make no block and break none. Each
/// line is counted once: the block that is found first, read from the top, keeps it.
#[derive(Default)]
pub struct Search {
    groups: BTreeMap<[u8; 32], SameFiles>,
    texts: Vec<(String, Vec<Line>)>,
    lines: usize,
    cut: bool,
}

impl Search {
    /// `code`: also look for blocks in it.
    pub fn add(&mut self, path: &str, bytes: &[u8], code: bool) {
        if bytes.is_empty() {
            return;
        }
        let hash: [u8; 32] = Sha256::digest(bytes).into();
        let group = self.groups.entry(hash).or_insert_with(|| SameFiles {
            sha256: hex::encode(hash),
            bytes: bytes.len() as u64,
            paths: Vec::new(),
        });
        group.paths.push(path.to_owned());
        // The blocks of a copied file say nothing that the copy does not.
        if code && group.paths.len() == 1 {
            let mut lines = normalised(&String::from_utf8_lossy(bytes));
            let room = LINES_MAX - self.lines;
            self.cut |= lines.len() > room;
            lines.truncate(room);
            self.lines += lines.len();
            self.texts.push((path.to_owned(), lines));
        }
    }

    pub fn finish(self) -> Found {
        let mut files: Vec<SameFiles> = self.groups.into_values().filter(|group| group.paths.len() > 1).collect();
        files.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.paths.cmp(&b.paths)));
        let (mut blocks, mut first) = (Vec::new(), HashMap::new());
        for file in 0..self.texts.len() {
            within(&self.texts, file, &mut first, &mut blocks);
        }
        blocks.sort_by(|a, b| b.lines.cmp(&a.lines).then_with(|| a.first.path.cmp(&b.first.path)));
        Found { files, blocks, complete: !self.cut }
    }
}

fn within(
    texts: &[(String, Vec<Line>)],
    file: usize,
    first: &mut HashMap<Window, (usize, usize)>,
    found: &mut Vec<SameBlock>,
) {
    let (path, lines) = &texts[file];
    let mut at = 0;
    while at + BLOCK_LINES_MIN <= lines.len() {
        let window: Window = std::array::from_fn(|n| lines[at + n].1);
        let earlier = *first.entry(window).or_insert((file, at));
        let (other_path, other) = &texts[earlier.0];
        let room = if earlier.0 == file { at - earlier.1 } else { usize::MAX };
        let same = lines[at..].iter().zip(&other[earlier.1..]).take_while(|(a, b)| a.1 == b.1).count().min(room);
        if earlier == (file, at) || same < BLOCK_LINES_MIN {
            at += 1;
            continue;
        }
        found.push(SameBlock {
            lines: same,
            first: Place { path: other_path.clone(), line: other[earlier.1].0 },
            again: Place { path: path.clone(), line: lines[at].0 },
        });
        at += same;
    }
}

fn normalised(text: &str) -> Vec<Line> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let telling = numbered.filter(|(_, line)| line.chars().any(char::is_alphanumeric));
    telling.map(|(number, line)| (number, hash(line))).collect()
}

/// The same in every process: the keys of this hasher are fixed.
fn hash(line: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(range: std::ops::Range<usize>) -> String {
        range.map(|n| format!("  line {n}\n}}\n\n")).collect::<Vec<_>>().concat()
    }

    fn search(files: &[(&str, &str)]) -> Found {
        let mut search = Search::default();
        for (path, text) in files {
            search.add(path, text.as_bytes(), true);
        }
        search.finish()
    }

    fn check(texts: &[(&str, &str)], expected: &[(usize, &str, usize, &str, usize)]) {
        let found = search(texts);
        let shown: Vec<_> = found
            .blocks
            .iter()
            .map(|b| (b.lines, b.first.path.as_str(), b.first.line, b.again.path.as_str(), b.again.line))
            .collect();
        assert_eq!(shown, expected);
        assert!(found.complete);
    }

    #[test]
    fn a_block_is_as_long_as_it_can_be_and_is_found_whatever_stands_between_its_lines() {
        let (whole, part) = (text(0..20), format!("x\n{}y\n", text(5..12).replace("\n}\n\n", "\n")));
        check(&[("a", &whole), ("b", &part)], &[(7, "a", 16, "b", 2)]);
        check(&[("a", &text(0..5)), ("b", &(text(0..5) + "x"))], &[]);
    }

    #[test]
    fn a_file_that_repeats_itself_does_not_overlap_itself() {
        let twice = text(0..7) + &text(0..7);
        check(&[("a", &twice)], &[(7, "a", 1, "a", 22)]);
        check(&[("a", &"same\n".repeat(20))], &[(8, "a", 1, "a", 13), (6, "a", 1, "a", 7)]);
    }

    #[test]
    fn files_with_the_same_bytes_are_one_group() {
        let found = search(&[("a", "xy"), ("b", "z"), ("c", "xy"), ("d", ""), ("e", "")]).files;
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].paths.as_slice(), found[0].bytes), (&["a".to_owned(), "c".to_owned()][..], 2));
        assert_eq!(found[0].sha256.len(), 64);
    }
}
