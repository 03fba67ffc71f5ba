use super::*;
use crate::agents::survey::{
    count::Lines,
    findings::{Measured, Missing, Share},
    functions::Function,
    markers::{MARKERS, Marker},
    parts::Part,
    source::{Entry, Skipped},
};

fn part(name: &str) -> Part {
    Part { name: name.to_owned(), scopes: vec![name.to_owned()], files: 1, bytes: 1 }
}

fn report() -> PartReport {
    let lines = Lines { total: 1_234, blank: 34, comment: 200, code: 1_000 };
    let measured = Measured {
        files: 1,
        bytes: 5_000,
        lines,
        languages: [("Rust".to_owned(), Share { files: 1, bytes: 5_000, lines })].into(),
        largest: vec![Entry { path: "src/a.rs".to_owned(), bytes: 5_000 }],
        skipped: Skipped { binary: 2, ..Skipped::default() },
    };
    let functions = Functions {
        count: 3,
        longest: vec![Function { path: "src/a.rs".to_owned(), name: "f".to_owned(), line: 7, lines: 90 }],
    };
    let first = Marker { path: "src/a.rs".to_owned(), line: 9, word: MARKERS[0].to_owned(), text: String::new() };
    let markers = Markers { count: 1, by_word: [(MARKERS[0].to_owned(), 1)].into(), found: vec![first] };
    let duplicates = Duplicates { complete: true, ..Duplicates::default() };
    PartReport { part: part("src"), counted: Counted { measured, functions, markers, duplicates } }
}

#[test]
fn a_note_says_what_was_measured() {
    let expected = format!(
        "src: 1,234 lines in 1 text file, of which 1,000 are code, 200 comments and 34 blank. Most of it is Rust \
         (1,000 lines of code). The longest of 3 functions is f at src/a.rs:7 with 90 lines. Comments mark unfinished \
         work: 1 {}, the first at src/a.rs:9. No file is a copy of another and no block of six lines stands twice.",
        MARKERS[0]
    );
    assert_eq!(note(&report()), expected);
}

#[test]
fn the_summary_and_the_table_say_what_is_missing() {
    let missing = Missing { part: part("web"), error: "measure_files: out of luck".to_owned() };
    let findings = Findings::merge(vec![report()], vec![missing], report().counted.duplicates);
    let text = summary("tree", &findings);
    assert!(text.starts_with("tree holds 1,234 lines in 1 text file: 1,000 of code"), "{text}");
    assert!(
        text.ends_with("Not read: 2 binary. The part web is missing from these numbers: measure_files: out of luck.")
    );
    let table = table(&findings);
    assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    assert_eq!(table.rows[1][..2], ["web", "not surveyed"]);
    assert_eq!(table.rows[2][..3], ["All", "1", "1,234"]);
    assert!(table.text().contains("f (90)"));
}

#[test]
fn counts_are_spelled_as_people_do() {
    assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(many(1, "line of code"), "1 line of code");
    assert_eq!(many(2, "line of code"), "2 lines of code");
    assert_eq!([1, 1_025, 3 << 20].map(bytes), ["1 byte", "2 KiB", "3 MiB"]);
}
