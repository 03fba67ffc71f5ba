//! The house rules that a machine can check: who may name whom, who may write, and how long a file is.

mod ambient;
mod names;
mod rules;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::CommandFactory as _;

use crate::support::server::Flags;

/// The modules in the order of their ranks; one may name only those before it. Those in a row do not name each other.
const RANKS: &[&[&str]] = &[
    &["domain"],
    &["clock", "confine", "paced", "postgres", "quota", "supervise", "throttle", "wire"],
    &["client", "config", "rate"],
    &["telemetry"],
    &["store", "bus"],
    &["auth", "artifacts"],
    &["timeline", "threads"],
    &["emitters", "dispatch", "indexer", "nats", "pricing", "retention", "saved", "sealer"],
    &["engine"],
    &["agents"],
    &["channels", "runners", "faces"],
    &["http"],
    &["database"],
    &["app"],
    &["cli"],
];

const LINES_MAX: usize = 400;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a folder with one of these endings.
fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir()
                && !matches!(name.as_str(), "node_modules" | "dist" | "target" | "snapshots" | "test-results")
            {
                folders.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The code of a file without its comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The path of a file as people write it.
fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn is_test(path: &Path) -> bool {
    let name = name(path);
    name.ends_with("/tests.rs") || name.contains("/tests/") || name.ends_with("/testing.rs")
}

/// The modules of the crate that a piece of code names.
fn named_modules(code: &str, depth: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut starts = ["crate::", "runreel_core::"].map(str::to_owned).to_vec();
    // From a file `depth` modules deep, so many `super`s lead to the root; tests inside a file are one deeper.
    starts.extend([depth, depth + 1].map(|supers| "super::".repeat(supers)));
    for start in starts {
        for (at, _) in code.match_indices(&start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || before == '_' || before == ':' || before == '$' {
                continue;
            }
            found.extend(heads(&code[at + start.len()..]));
        }
    }
    found
}

/// The first words of a path: one, or each of a list in braces.
fn heads(text: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(list) = text.strip_prefix('{') else { return vec![word(text)] };
    let (mut depth, mut heads, mut fresh) = (0, Vec::new(), true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if fresh && !c.is_whitespace() => {
                heads.push(word(&list[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    heads
}

#[test]
fn names_are_found_in_every_spelling() {
    let code = "use crate::{domain::{id, x::{a, b}}, store};\nuse super::super::bus::Bus; crate::http::x(); $crate::not; runreel_core::timeline::y()";
    assert_eq!(named_modules(code, 2), ["bus", "domain", "http", "store", "timeline"].map(str::to_owned).into());
    assert!(named_modules("use super::mine;", 2).is_empty());
}

#[test]
fn a_module_names_only_modules_of_a_lower_rank() {
    let rank = |module: &str| RANKS.iter().position(|row| row.contains(&module));
    let mut wrong = Vec::new();
    for path in files("backend", &[".rs"]) {
        let relative = path.strip_prefix(root().join("backend")).unwrap().with_extension("");
        let parts: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let own = parts[0].as_str();
        if matches!(own, "core" | "lib" | "main" | "build") {
            continue;
        }
        let own_rank = rank(own).unwrap_or_else(|| panic!("{own} has no rank: give it one in tests/it/tidy/mod.rs"));
        let depth = parts.len() - usize::from(parts.last().is_some_and(|part| part == "mod"));
        for module in named_modules(&code(&path), depth) {
            let lower = rank(&module).is_none_or(|rank| rank < own_rank);
            if module != own && !lower {
                wrong.push(format!("{} names {module}", name(&path)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_top_level_module_has_a_rank() {
    let [core, rest] = ["backend/core.rs", "backend/lib.rs"].map(|file| fs::read_to_string(root().join(file)).unwrap());
    let modules: BTreeSet<&str> = (core.lines().chain(rest.lines()))
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    let ranked: BTreeSet<&str> = RANKS.iter().flat_map(|row| row.iter().copied()).collect();
    assert_eq!(modules, ranked);
}

#[test]
fn no_file_is_longer_than_four_hundred_lines() {
    let mut long = Vec::new();
    for folder in ["backend", "tests", "benches", "migrations", "web/src", "sdk"] {
        for path in files(folder, &[".rs", ".sql", ".ts", ".tsx", ".svelte", ".css", ".py"]) {
            // Made from the contract, and as long as that is.
            if path.ends_with("sdk/typescript/packages/client/src/schema.ts") {
                continue;
            }
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            if lines > LINES_MAX {
                long.push(format!("{}: {lines}", name(&path)));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn the_vocabulary_is_pure() {
    for path in files("backend/domain", &[".rs"]).iter().filter(|path| !is_test(path)) {
        let code = code(path);
        for impure in [
            "async fn",
            "sqlx::",
            "axum::",
            "tokio::",
            "Utc::now",
            "SystemTime",
            "Instant::now",
            "rand::",
            "std::env",
            "std::fs",
        ] {
            assert!(!code.contains(impure), "{} holds {impure}", name(path));
        }
    }
}

#[test]
fn every_module_says_what_it_is_for() {
    for path in files("backend", &["mod.rs", "lib.rs", "core.rs"]) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} opens without //!", name(&path));
    }
}

#[test]
fn every_migration_begins_with_its_reason() {
    let migrations = files("migrations", &[".sql"]);
    assert!(!migrations.is_empty());
    for path in migrations {
        assert!(fs::read_to_string(&path).unwrap().starts_with("-- "), "{} says nothing first", name(&path));
    }
}

fn document(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_route_stands_in_the_protocol() {
    let text = document("docs/protocol.md");
    let api = serde_json::to_value(runreel::http::openapi()).unwrap();
    let mut missing = Vec::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let route = format!("{} {path}", method.to_uppercase());
            if !text.contains(&route) {
                missing.push(route);
            }
        }
    }
    missing.extend(["/openapi.json", "/docs"].map(str::to_owned).into_iter().filter(|path| !text.contains(path)));
    assert!(missing.is_empty(), "docs/protocol.md does not tell of {missing:#?}");
}

#[test]
fn every_error_code_and_bound_stands_in_the_protocol() {
    let text = document("docs/protocol.md");
    let api = serde_json::to_value(runreel::http::openapi()).unwrap();
    let codes = api["components"]["schemas"]["Code"]["enum"].as_array().unwrap();
    let missing: Vec<_> = codes.iter().filter(|code| !text.contains(code.as_str().unwrap())).collect();
    assert!(missing.is_empty(), "docs/protocol.md does not tell of {missing:?}");
}

#[test]
fn every_flag_of_serve_stands_in_the_operations_guide() {
    let text = document("docs/operations.md");
    let command = Flags::command();
    let mut missing = Vec::new();
    for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
        let flag = format!("--{}", argument.get_long().unwrap());
        let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
        missing.extend([Some(flag), variable].into_iter().flatten().filter(|word| !text.contains(word.as_str())));
    }
    assert!(missing.is_empty(), "docs/operations.md does not tell of {missing:?}");
}

#[test]
fn every_view_stands_in_the_sql_guide() {
    let text = document("docs/sql.md");
    let views = crate::views::VIEWS;
    for (view, columns) in views {
        assert!(text.contains(view), "docs/sql.md does not tell of {view}");
        let missing: Vec<&str> = columns.split(", ").filter(|column| !text.contains(column)).collect();
        assert!(missing.is_empty(), "docs/sql.md does not tell of {missing:?} in {view}");
    }
}

#[test]
fn the_top_level_has_the_folders_that_the_architecture_names_and_no_others() {
    let ignored = document(".gitignore");
    let is_listed = |name: &String| !name.starts_with('.') && !ignored.lines().any(|line| line == format!("/{name}"));
    let folders = root().read_dir().unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir());
    let there: BTreeSet<String> =
        folders.map(|folder| folder.file_name().into_string().unwrap()).filter(is_listed).collect();
    let architecture = document("ARCHITECTURE.md");
    let missing: Vec<_> = there.iter().filter(|folder| !architecture.contains(&format!("`{folder}/"))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names no {missing:?}");
    for folder in ["artifacts", "backend", "migrations", "sdk", "tests", "web"] {
        assert!(there.contains(folder), "{folder}/ is gone");
    }
}

#[test]
fn every_recipe_that_a_document_names_is_there() {
    let recipes = document("justfile");
    let heads = recipes.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let heads = heads.filter(|line| line.contains(':') && !line.contains(":="));
    let recipes: BTreeSet<&str> = heads.filter_map(|line| line.split([' ', ':']).next()).collect();
    let named = ["README.md", "CONTRIBUTING.md"].map(PathBuf::from);
    let folders = ["docs", ".github", ".ci", "sdk", "examples"].map(|folder| files(folder, &["md", "yml", "run"]));
    for path in named.into_iter().chain(folders.into_iter().flatten()) {
        let text = document(path.to_str().unwrap());
        for recipe in text.split("./just ").skip(1).filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
            (end > 0 && !rest.starts_with("--")).then(|| &rest[..end])
        }) {
            assert!(recipes.contains(recipe), "{}: there is no recipe {recipe}", path.display());
        }
    }
}

#[test]
fn a_recipe_that_takes_any_words_is_called_with_no_other_after_it() {
    let text = document("justfile");
    let takes_words = text.lines().filter(|line| line.contains(" *args")).filter_map(|line| line.split(' ').next());
    let takes_words: BTreeSet<&str> = takes_words.collect();
    assert!(takes_words.contains("browser"));
    let calls = text.lines().filter_map(|line| line.split_once("{{ just_executable() }}\" ")).map(|(_, words)| words);
    let calls: Vec<Vec<&str>> = calls.map(|words| words.split_whitespace().collect()).collect();
    assert!(calls.iter().any(|words| words.len() > 1));
    for words in calls {
        let (_, before) = words.split_last().unwrap();
        assert!(!before.iter().any(|word| takes_words.contains(word)), "{words:?}");
    }
}
