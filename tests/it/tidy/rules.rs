//! Who may append to the log, publish on the bus and speak SQL, as rules over the text of the program.
//!
//! The types say the most: `bus::Publisher` and `store::append::Appenders` are made once, cannot be cloned, and are held by
//! the timeline (`tests/planted` shows what the compiler says of another way). The rules here say where those values may be
//! made, and they are shown planted violations.

use std::fs;

use super::{code, files, is_test, name};

/// A file of the program: its name and its code without comments.
struct Source {
    name: String,
    code: String,
}

fn sources() -> Vec<Source> {
    let paths = files("backend", &[".rs", ".sql"]);
    paths.iter().filter(|path| !is_test(path)).map(|path| Source { name: name(path), code: code(path) }).collect()
}

/// Words that only these files, or files of these folders (which end in `/`), may hold.
struct Reserved {
    words: &'static [&'static str],
    files: &'static [&'static str],
    instead: &'static str,
}

const RESERVED: &[Reserved] = &[
    Reserved {
        words: &["Appenders", "Appender", "connect_to_append"],
        files: &["backend/store/", "backend/timeline/", "backend/app/parts.rs"],
        instead: "only the timeline appends: call Timeline::emit_run_event",
    },
    Reserved {
        words: &["AppendRequest {"],
        files: &["backend/timeline/emit.rs"],
        instead: "one function makes append requests: call Timeline::emit_run_event",
    },
    Reserved {
        words: &["Appenders("],
        files: &["backend/store/append.rs", "backend/store/mod.rs"],
        instead: "the right to append is made with the store",
    },
    Reserved {
        words: &["appenders.open("],
        files: &["backend/timeline/recover.rs", "backend/timeline/writer.rs"],
        instead: "only a lane opens an appender",
    },
    Reserved { words: &["appender.append("], files: &["backend/timeline/writer.rs"], instead: "only a lane appends" },
    Reserved {
        words: &["Bus::new", "bus::Publisher"],
        files: &["backend/bus/", "backend/timeline/publish.rs"],
        instead: "only the timeline's gate publishes: listeners take Timeline::bus",
    },
    Reserved {
        words: &["for_tests"],
        files: &["backend/timeline/open/handle.rs"],
        instead: "only tests have texts that are in no table",
    },
    Reserved {
        words: &["insert into store.run_event"],
        files: &["backend/store/sql/append_events.sql", "backend/store/sql/append_to_runs.sql"],
        instead: "one statement, in two sizes, inserts events",
    },
    Reserved {
        words: &["append_events.sql", "append_to_runs.sql"],
        files: &["backend/store/append.rs", "backend/store/sql/"],
        instead: "one function executes the statement that inserts events",
    },
];

/// What of `sqlx` other modules may name: how a connection is described, and its errors. Nothing of it executes SQL.
const SQLX_OUTSIDE: [&str; 7] =
    ["Error", "error", "DatabaseError", "code", "postgres", "PgConnectOptions", "PgSslMode"];
/// Where the trait is needed that tells the password of a connection.
const SQLX_OPTIONS: &str = "backend/cli/sql/psql.rs";

/// What a statement holds that is executed on a connection which still has the owner it served last.
const NAMES_ITS_OWNER: &str = "select set_config('runreel.owner', $1, true) as owner";

fn is_one_of(files: &[&str], name: &str) -> bool {
    files.iter().any(|file| name == *file || file.ends_with('/') && name.starts_with(file))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn holds(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let (before, after) = (code[..at].chars().next_back(), code[at + word.len()..].chars().next());
        let goes_on = word.ends_with(is_word) && after.is_some_and(is_word);
        !before.is_some_and(is_word) && !goes_on
    })
}

/// Every word of the path, or list of paths, that follows a module's name.
fn words_of_path(code: &str) -> Vec<String> {
    let Some(path) = code.strip_prefix("::") else { return vec!["*".to_owned()] };
    let mut depth = 0;
    let end = path.find(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        !(is_word(c) || matches!(c, ':' | '{' | '}' | '*') || depth > 0)
    });
    let path = &path[..end.unwrap_or(path.len())];
    // A module that is imported as such could be used under its own or another name.
    if ["postgres", "error"].iter().any(|module| {
        path.match_indices(module).any(|(at, _)| {
            let rest = &path[at + module.len()..];
            !rest.starts_with("::") || rest.contains("self")
        })
    }) {
        return vec!["postgres::*".to_owned()];
    }
    let words = path.split(|c: char| !is_word(c) && c != '*');
    words.filter(|word| !word.is_empty() && !matches!(*word, "as" | "_" | "self")).map(str::to_owned).collect()
}

/// What in a file breaks the rules.
fn violations(source: &Source) -> Vec<String> {
    let Source { name, code } = source;
    let mut found = Vec::new();
    for Reserved { words, files, instead } in RESERVED {
        let used = words.iter().filter(|word| !is_one_of(files, name) && holds(code, word));
        found.extend(used.map(|word| format!("{name} names {word}; {instead}")));
    }
    if !name.starts_with("backend/store/") {
        for (at, _) in code.match_indices("sqlx") {
            let is_allowed = |word: &String| {
                SQLX_OUTSIDE.contains(&word.as_str()) || word == "ConnectOptions" && name == SQLX_OPTIONS
            };
            let executing = words_of_path(&code[at + "sqlx".len()..]).into_iter().filter(|word| !is_allowed(word));
            found.extend(executing.map(|word| format!("{name} names sqlx::{word}; SQL is in backend/store alone")));
        }
    }
    let count = |text: &str| code.matches(text).count();
    let in_files = files("backend/store/sql", &[".sql"]).into_iter().filter(|path| {
        // The macros name files from the package's folder.
        code.contains(super::name(path).trim_start_matches("backend/"))
            && fs::read_to_string(path).is_ok_and(|sql| sql.contains(NAMES_ITS_OWNER))
    });
    if count(".by_itself(") > count(NAMES_ITS_OWNER) + in_files.count() {
        found.push(format!("{name} has a statement by itself that does not begin with {NAMES_ITS_OWNER}"));
    }
    found
}

#[test]
fn only_the_timeline_appends_and_publishes_and_only_the_store_speaks_sql() {
    let found: Vec<String> = sources().iter().flat_map(violations).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_planted_violation_is_found_and_the_message_says_what_to_do_instead() {
    let planted = |name: &str, code: &str| {
        let source = Source { name: name.to_owned(), code: code.to_owned() };
        violations(&source).join("\n")
    };
    for (code, message) in [
        (
            "let (store, right) = Store::connect_to_append(settings).await?;",
            "names connect_to_append; only the timeline appends: call Timeline::emit_run_event",
        ),
        ("fn second(by: &Appenders) {}", "names Appenders; only the timeline appends"),
        ("lane.send(AppendRequest { context })", "names AppendRequest {; one function makes append requests"),
        ("appenders.open(0).await", "names appenders.open(; only a lane opens an appender"),
        ("let (bus, publisher) = Bus::new(8);", "names Bus::new; only the timeline's gate publishes"),
        ("use crate::bus::{self}; fn f(p: bus::Publisher) {}", "names bus::Publisher; only the timeline's gate"),
        (r#"sqlx::query!("select 1")"#, "names sqlx::query; SQL is in backend/store alone"),
        (r#"sqlx::query_scalar("show x")"#, "names sqlx::query_scalar; SQL is in backend/store alone"),
        (r#"sqlx::raw_sql("begin")"#, "names sqlx::raw_sql; SQL is in backend/store alone"),
        (
            "use sqlx::{Executor as _, postgres::PgConnectOptions};",
            "names sqlx::Executor; SQL is in backend/store alone",
        ),
        ("use sqlx as s; s::query(text)", "names sqlx::*; SQL is in backend/store alone"),
        ("use sqlx::*;", "names sqlx::*; SQL is in backend/store alone"),
        (
            "use sqlx::postgres as pg; pg::PgPool::connect(url)",
            "names sqlx::postgres::*; SQL is in backend/store alone",
        ),
        ("use sqlx::{postgres::{self, PgSslMode}}; postgres::PgPool::connect(url)", "names sqlx::postgres::*; SQL is"),
        ("sqlx::postgres::PgListener::connect(url)", "names sqlx::PgListener; SQL is in backend/store alone"),
        (
            "use sqlx::ConnectOptions as _; options.connect().await?.copy_in_raw(text)",
            "names sqlx::ConnectOptions; SQL",
        ),
        ("\"insert into store.run_event values (1)\"", "one statement, in two sizes, inserts events"),
    ] {
        let found = planted("backend/http/second.rs", code);
        assert!(found.starts_with("backend/http/second.rs ") && found.contains(message), "{code}: {found:?}");
    }
    assert!(
        planted("backend/timeline/import.rs", "AppendRequest { context }").contains("one function"),
        "in the timeline"
    );
    assert!(
        planted("backend/store/prune.rs", "Appenders(self.clone())").contains("made with the store"),
        "in the store"
    );
    let unnamed = "self.by_itself(owner, |c| async { query!(\"select 1 from store.run\") })";
    assert!(planted("backend/store/second.rs", unnamed).contains("does not begin with"), "of nobody");
    let inside = "insert into store.run_event select 1";
    assert!(
        planted("backend/store/sql/second.sql", inside).contains("one statement"),
        "a second statement in the store"
    );
    assert_eq!(planted("backend/http/fine.rs", "use sqlx::{Error, postgres::PgConnectOptions};"), "");
}

#[test]
fn every_reserved_word_is_used_where_it_may_be() {
    let sources = sources();
    let used = |word: &&str| sources.iter().any(|source| holds(&source.code, word));
    let unused: Vec<&str> = RESERVED.iter().flat_map(|rule| rule.words).copied().filter(|word| !used(word)).collect();
    assert!(unused.is_empty(), "nothing is called {unused:?} any more: the rule proves nothing");
}
