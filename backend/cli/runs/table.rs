//! Runs on a terminal.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Row, Table, presets};
use serde_json::Value;

use crate::cli::render::{between, clean, clean_lines, clip, duration};

/// Longest agent in the table, characters.
const AGENT_CHARS_MAX: usize = 24;
/// Longest title in the table, characters.
const TITLE_CHARS_MAX: usize = 60;
/// Longest value in the details, characters; `--json` has all of it.
const VALUE_CHARS_MAX: usize = 16 * 1024;

/// A table of runs, one line each.
pub(super) fn list(runs: &[Value], now: DateTime<Utc>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).enforce_styling();
    let head = ["RUN", "STATUS", "AGENT", "TITLE", "CREATED", "TOOK", "EVENTS"];
    let mut header = Row::from(head.map(|name| Cell::new(name).add_attribute(Attribute::Dim)).to_vec());
    header.max_height(1);
    table.set_header(header);
    for run in runs {
        let mut row = Row::from(vec![
            Cell::new(text(run, "run_id")),
            status(run),
            Cell::new(clip(&text(run, "agent"), AGENT_CHARS_MAX)),
            Cell::new(clip(&text(run, "title"), TITLE_CHARS_MAX)),
            Cell::new(age(run, now)),
            Cell::new(took(run, now)),
            Cell::new(text(run, "last_seq")),
        ]);
        row.max_height(1);
        table.add_row(row);
    }
    // Ids are for copying and numbers for reading: only names shrink on a narrow screen.
    for column in [0, 1, 4, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::ContentWidth).set_padding((0, 2));
        }
    }
    for column in [2, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_padding((0, 2));
        }
    }
    format!("{}\n", table.trim_fmt())
}

/// One run, a line for each thing that is known of it.
pub(super) fn details(run: &Value, now: DateTime<Utc>) -> String {
    let mut out = String::new();
    let mut tell = |name: &str, value: &str| {
        if !value.is_empty() {
            _ = writeln!(out, "{name:<9} {}", value.replace('\n', "\n          "));
        }
    };
    tell("run", &text(run, "run_id"));
    tell("title", &text(run, "title"));
    tell("status", &status_word(run));
    let (role, agent) = (text(run, "role"), text(run, "agent"));
    tell("agent", &if agent.is_empty() { role } else { format!("{agent} ({role})") });
    tell("thread", &text(run, "thread_id"));
    tell("session", &text(run, "session_id"));
    tell("parent", &text(run, "parent_run_id"));
    tell(
        "tags",
        &run["tags"].as_array().map(|tags| tags.iter().map(plain).collect::<Vec<_>>().join(" ")).unwrap_or_default(),
    );
    tell("created", &[text(run, "created_at"), age(run, now)].join("  "));
    tell("took", &took(run, now));
    tell("events", &text(run, "last_seq"));
    for name in ["input", "output", "error", "metadata"] {
        tell(name, &block(&run[name]));
    }
    tell("stream", &text(run, "stream_url"));
    out
}

fn status(run: &Value) -> Cell {
    let word = status_word(run);
    let color = match run["status"].as_str() {
        _ if run["stalled"] == true => Color::Yellow,
        Some("completed") => Color::Green,
        Some("failed") => Color::Red,
        Some("cancelled") => Color::Yellow,
        Some("waiting" | "interrupted") => Color::Magenta,
        Some("running") => Color::Cyan,
        _ => Color::Reset,
    };
    Cell::new(word).fg(color)
}

fn status_word(run: &Value) -> String {
    let status = text(run, "status");
    if run["stalled"] == true { format!("{status}, stalled") } else { status }
}

fn age(run: &Value, now: DateTime<Utc>) -> String {
    let age = run["created_at"].as_str().and_then(|at| between(at, &now.to_rfc3339()));
    age.map(|age| format!("{} ago", duration(age))).unwrap_or_default()
}

/// From the start to the end, or to now if it is still running.
fn took(run: &Value, now: DateTime<Utc>) -> String {
    let now = now.to_rfc3339();
    let ended = run["ended_at"].as_str().unwrap_or(&now);
    run["started_at"].as_str().and_then(|started| between(started, ended)).map(duration).unwrap_or_default()
}

fn text(run: &Value, name: &str) -> String {
    plain(&run[name])
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => clean(text),
        other => clean(&other.to_string()),
    }
}

/// Text as its lines, anything else as indented JSON.
fn block(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::Object(members) if members.is_empty() => return String::new(),
        Value::String(text) => clean_lines(text),
        other => clean_lines(&serde_json::to_string_pretty(other).unwrap_or_default()),
    };
    clip(&text, VALUE_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> DateTime<Utc> {
        DateTime::parse_from_rfc3339("2025-11-13T02:00:00Z").unwrap().to_utc()
    }

    fn run() -> Value {
        json!({"run_id": "0198c0de-0000-7000-8000-000000000001", "status": "running", "stalled": true, "role": "agent",
            "agent": "coder", "title": "Fix the\nbuild", "created_at": "2025-11-13T01:55:00Z", "last_seq": 12,
            "started_at": "2025-11-13T01:55:10Z", "ended_at": null, "input": {"n": 1}, "output": null, "tags": ["a", "b"],
            "metadata": {}})
    }

    fn plain_list(runs: &[Value]) -> String {
        anstream::adapter::strip_str(&list(runs, now())).to_string()
    }

    #[test]
    fn the_table_has_a_line_for_each_run() {
        let table = plain_list(&[run(), run()]);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], ["RUN", "STATUS", "AGENT", "TITLE", "CREATED", "TOOK", "EVENTS"]);
        assert_eq!(
            lines[1].join(" "),
            "0198c0de-0000-7000-8000-000000000001 running, stalled coder Fix the build 5 m 00 s ago 4 m 50 s 12"
        );
    }

    #[test]
    fn the_details_leave_out_what_is_not_known() {
        let details = details(&run(), now());
        let expected = "run       0198c0de-0000-7000-8000-000000000001\ntitle     Fix the build\nstatus    running, stalled\n\
            agent     coder (agent)\ntags      a b\ncreated   2025-11-13T01:55:00Z  5 m 00 s ago\ntook      4 m 50 s\n\
            events    12\ninput     {\n            \"n\": 1\n          }\n";
        assert_eq!(details, expected);
    }

    #[test]
    fn nothing_a_run_holds_reaches_the_terminal_raw() {
        let hostile = json!("\u{1b}]0;x\u{7}\u{1b}[2J\r\u{9b}1m");
        let mut run = run();
        for name in ["run_id", "status", "agent", "title", "created_at", "started_at", "input", "error", "last_seq"] {
            run[name] = hostile.clone();
        }
        run["tags"] = json!([hostile]);
        for text in [plain_list(&[run.clone()]), details(&run, now())] {
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}
