//! Nothing is ambient: the identity of a run is passed by hand, so no value outlives the function that has it.

use std::collections::BTreeSet;

use super::{code, files, is_test, name, root};

/// Every value of the program that is in no function's hands. None of these can hold a `RunContext`.
const KNOWN: [&str; 5] = [
    "backend/auth/signatures.rs PROVIDER",
    "backend/faces/agui/shapes.rs SHAPES",
    "backend/main.rs MEMORY",
    "backend/store/mod.rs MIGRATOR",
    "backend/telemetry.rs HANDLE",
];

/// The names of the statics in a piece of code, those of threads and tasks among them. Their types say nothing: an alias or
/// a struct may hold anything.
fn statics(code: &str) -> BTreeSet<&str> {
    let is_part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let named = |(at, word): (usize, &str)| {
        // A lifetime, or the end of a longer word.
        if code[..at].ends_with(|c: char| c == '\'' || is_part_of_name(c)) {
            return None;
        }
        let rest = code[at + word.len()..].trim_start();
        let rest = ["mut ", "ref "].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest).trim_start();
        let name = &rest[..rest.find(|c| !is_part_of_name(c))?];
        (!name.is_empty() && rest[name.len()..].trim_start().starts_with(':')).then_some(name)
    };
    code.match_indices("static").filter_map(named).collect()
}

#[test]
fn there_is_no_ambient_state() {
    let sources = files("backend", &[".rs"]);
    let found = sources.iter().filter(|path| !is_test(path)).flat_map(|path| {
        let code = code(path);
        statics(&code).iter().map(|value| format!("{} {value}", name(path))).collect::<Vec<_>>()
    });
    assert_eq!(found.collect::<BTreeSet<_>>(), KNOWN.map(str::to_owned).into());
}

#[test]
fn ambient_state_that_is_planted_is_found() {
    let path = root().join("tests/planted/ambient.rs");
    let marked = std::fs::read_to_string(&path).unwrap();
    let marked: BTreeSet<&str> =
        marked.lines().filter_map(|line| line.split_once("//~ ").map(|(_, name)| name)).collect();
    assert!(marked.len() > 8);
    assert_eq!(statics(&code(&path)), marked);
}
