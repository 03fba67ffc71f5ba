//! Names that were retired, and a test that keeps them away.

use std::{collections::BTreeSet, fs, path::PathBuf};

use super::{files, name, root};

/// Names that were replaced by the field's own; `ARCHITECTURE.md` has a glossary of those that stand.
const RETIRED: [&str; 49] = [
    "Wishes",
    "Doorbell",
    "Ears",
    "Taker",
    "Emission",
    "emission",
    "Complaint",
    "Shelf",
    "Owed",
    "Visit",
    "Memos",
    "Speaker",
    "Track",
    "Backlog",
    "backlog",
    "Passage",
    "passage",
    "Glance",
    "Gathering",
    "Teller",
    "Telling",
    "Keeper",
    "Keeping",
    "Seized",
    "Walls",
    "Birth",
    "Journal",
    "Office",
    "Desk",
    "Hired",
    "Roster",
    "Unfit",
    "Flaw",
    "gist",
    "is_passing",
    "is_transient",
    "is_circle",
    "settle_pepper",
    "shelf",
    "doorbell",
    "bell",
    "ears",
    "rung",
    "nudge",
    "trouble",
    "carry_out",
    "wishes",
    "RunsAfter",
    "ThreadsAfter",
];

#[test]
fn a_name_that_was_retired_is_used_nowhere() {
    let mut found = Vec::new();
    let documents = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    let decisions = |path: &PathBuf| name(path).starts_with("docs/adr");
    let files = files("backend", &[".rs", ".sql"]).into_iter().chain(files("docs", &[".md"])).chain(documents);
    for path in files.filter(|path| !decisions(path)) {
        let text = fs::read_to_string(&path).unwrap();
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let used: BTreeSet<&str> = words.filter(|word| RETIRED.contains(word)).collect();
        found.extend(used.into_iter().map(|word| format!("{} in {}", word, name(&path))));
    }
    assert!(found.is_empty(), "{found:#?}");
}
