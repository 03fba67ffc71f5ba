//! What the survey's tools measure, as they answer it, and what the supervisor makes of all parts together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    count::Lines,
    duplicates::{SameBlock, SameFiles},
    functions::Function,
    markers::Marker,
    parts::Part,
    source::{Entry, Skipped},
};

/// Answer of `walk_tree`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Walked {
    pub files: u64,
    pub bytes: u64,
    pub skipped: Skipped,
    /// The files again, divided.
    pub parts: Vec<Part>,
}

/// One language's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub files: u64,
    pub bytes: u64,
    pub lines: Lines,
}

/// Answer of `measure_files`: text files only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub files: u64,
    pub bytes: u64,
    pub lines: Lines,
    pub languages: BTreeMap<String, Share>,
    /// The largest files, the largest first.
    pub largest: Vec<Entry>,
    pub skipped: Skipped,
}

/// Answer of `find_long_functions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Functions {
    /// Functions found.
    pub count: u64,
    /// The longest ones, the longest first.
    pub longest: Vec<Function>,
}

/// Answer of `find_todos`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Markers {
    pub count: u64,
    pub by_word: BTreeMap<String, u64>,
    /// The first ones in the order of their paths.
    pub found: Vec<Marker>,
}

/// Answer of `find_duplicates`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Duplicates {
    /// Files that have the bytes of another one, the first of each group not counted.
    pub copied_files: u64,
    pub copied_bytes: u64,
    pub files: Vec<SameFiles>,
    pub block_count: u64,
    /// Normalised lines in the later places of all blocks.
    pub block_lines: u64,
    pub blocks: Vec<SameBlock>,
    /// Whether every line was compared.
    pub complete: bool,
}

/// All that was counted in a part of the tree, or in all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    pub measured: Measured,
    pub functions: Functions,
    pub markers: Markers,
    pub duplicates: Duplicates,
}

/// A part and what its worker brought back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartReport {
    pub part: Part,
    pub counted: Counted,
}

/// A part nobody could survey.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Missing {
    pub part: Part,
    pub error: String,
}

/// The whole survey.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    pub parts: Vec<PartReport>,
    pub missing: Vec<Missing>,
    /// All surveyed parts together. Copies are looked for in all of them at once: one may lie in another part than its
    /// original.
    pub total: Counted,
}

/// Most entries of a list that is shown.
pub const LISTED_MAX: usize = 10;
/// Most JSON that one run hands to another, bytes; it stays with the run, and so it stays small.
pub const COUNTED_BYTES_MAX: usize = 32 * 1024;

impl Findings {
    /// Adds the parts up.
    pub fn merge(parts: Vec<PartReport>, missing: Vec<Missing>, duplicates: Duplicates) -> Self {
        let mut total = Counted { duplicates, ..Counted::default() };
        for PartReport { counted, .. } in &parts {
            total.measured.add(&counted.measured);
            total.functions.count += counted.functions.count;
            total.functions.longest.extend_from_slice(&counted.functions.longest);
            total.markers.count += counted.markers.count;
            total.markers.found.extend_from_slice(&counted.markers.found);
            for (word, count) in &counted.markers.by_word {
                *total.markers.by_word.entry(word.clone()).or_default() += count;
            }
        }
        longest_first(&mut total.functions.longest, LISTED_MAX);
        total.markers.found.truncate(LISTED_MAX);
        Self { parts, missing, total }
    }
}

impl Counted {
    /// The same in at most [`COUNTED_BYTES_MAX`] of JSON: paths may be long, and then the lists are shorter. No count
    /// changes.
    #[must_use]
    pub fn within_bounds(mut self) -> Self {
        for top in [LISTED_MAX, 3, 1, 0] {
            self.measured.largest.truncate(top);
            self.functions.longest.truncate(top);
            self.markers.found.truncate(top);
            self.duplicates.files.truncate(top);
            self.duplicates.blocks.truncate(top);
            if serde_json::to_string(&self).is_ok_and(|json| json.len() <= COUNTED_BYTES_MAX) {
                break;
            }
        }
        self
    }
}

impl Measured {
    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.lines.add(other.lines);
        self.skipped.add(other.skipped);
        for (name, share) in &other.languages {
            self.languages.entry(name.clone()).or_default().add(*share);
        }
        self.largest.extend_from_slice(&other.largest);
        largest_first(&mut self.largest, LISTED_MAX);
    }

    /// Languages by lines of code, the most first.
    pub fn by_code(&self) -> Vec<(&str, Share)> {
        let mut shares: Vec<(&str, Share)> =
            self.languages.iter().map(|(name, share)| (name.as_str(), *share)).collect();
        shares.sort_by(|a, b| b.1.lines.code.cmp(&a.1.lines.code).then(a.0.cmp(b.0)));
        shares
    }
}

impl Share {
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.lines.add(other.lines);
    }
}

pub fn longest_first(functions: &mut Vec<Function>, top: usize) {
    functions.sort_by(|a, b| b.lines.cmp(&a.lines).then_with(|| (&a.path, a.line).cmp(&(&b.path, b.line))));
    functions.truncate(top);
}

pub fn largest_first(entries: &mut Vec<Entry>, top: usize) {
    entries.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
    entries.truncate(top);
}
