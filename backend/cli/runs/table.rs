//! Runs on a terminal.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Row, Table, presets};
use serde_json::Value;

use crate::{
    cli::render::{between, clean, clean_lines, clip, duration},
    domain::failure::Failure,
};

/// Longest agent in the table, characters.
const AGENT_CHARS_MAX: usize = 24;
/// Longest title in the table, characters.
const TITLE_CHARS_MAX: usize = 60;
/// Longest value in the details, characters; `--json` has all of it.
const VALUE_CHARS_MAX: usize = 16 * 1024;
/// Longest error in the details, characters: all that a payload in the log may have.
const FAILURE_CHARS_MAX: usize = 64 * 1024;

/// Columns from which a line has room for a whole id, and for how long a run took.
const WIDTH_OF_ALL: usize = 120;
/// Characters of a short id: the millisecond in which the run was created.
const SHORT_ID_CHARS_MIN: usize = 13;

/// A table of runs, one line each. On a narrow terminal the ids are cut to a beginning that is enough for the commands,
/// and the last columns are left out, so that agents and titles have room. `None` is no terminal: nothing is cut.
pub(super) fn list(runs: &[Value], now: DateTime<Utc>, width: Option<usize>) -> String {
    let is_narrow = width.is_some_and(|width| width < WIDTH_OF_ALL);
    let id_chars = if is_narrow { short_id_chars(runs) } else { usize::MAX };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).enforce_styling();
    if let Some(width) = width {
        table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    }
    let columns = if is_narrow { 5 } else { 8 };
    let head = ["RUN", "STATUS", "AGENT", "TITLE", "CREATED", "TOOK", "EVENTS", "COST"];
    let mut header = Row::from(head[..columns].iter().map(|name| Cell::new(name).add_attribute(Attribute::Dim)));
    header.max_height(1);
    table.set_header(header);
    for run in runs {
        let mut cells = vec![
            Cell::new(text(run, "run_id").chars().take(id_chars).collect::<String>()),
            status(run),
            Cell::new(clip(&text(run, "agent"), if is_narrow { AGENT_CHARS_MAX / 2 } else { AGENT_CHARS_MAX })),
            Cell::new(clip(&about(run), TITLE_CHARS_MAX)),
            Cell::new(if is_narrow { short_age(run, now) } else { age(run, now) }),
            Cell::new(took(run, now)),
            Cell::new(text(run, "last_seq")),
            Cell::new(cost(&run["usage"])),
        ];
        cells.truncate(columns);
        let mut row = Row::from(cells);
        row.max_height(1);
        table.add_row(row);
    }
    // Ids are for copying and numbers for reading: only names shrink on a narrow screen.
    for at in 0..columns {
        if let Some(column) = table.column_mut(at) {
            column.set_padding((0, 2));
            if at != 3 && (is_narrow || at != 2) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
    format!("{}\n", table.trim_fmt())
}

/// The title of a run, how many are below it, and how it went.
fn about(run: &Value) -> String {
    let below = run["descendants"]["count"].as_i64().filter(|count| *count > 0);
    let below = below.map(|count| format!("(+{count} {})", if count == 1 { "run" } else { "runs" }));
    let named = [Some(text(run, "title")), below].into_iter().flatten().filter(|text| !text.is_empty());
    let named = named.collect::<Vec<_>>().join(" ");
    let all = [named, text(&run["excerpt"], "text")].into_iter().filter(|text| !text.is_empty());
    all.collect::<Vec<_>>().join(" · ")
}

/// How much of the ids tells these runs apart.
fn short_id_chars(runs: &[Value]) -> usize {
    let mut ids: Vec<&str> = runs.iter().filter_map(|run| run["run_id"].as_str()).collect();
    ids.sort_unstable();
    let shared = |(one, other): (&str, &str)| one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let most = ids.windows(2).map(|pair| shared((pair[0], pair[1]))).max().unwrap_or_default();
    // One more that differs; behind a hyphen rather than at it.
    let chars = (most + 1).max(SHORT_ID_CHARS_MIN);
    if matches!(chars, 14 | 19 | 24) { chars + 1 } else { chars }
}

/// One run, a line for each thing that is known of it.
pub(super) fn details(run: &Value, page: &str, now: DateTime<Utc>) -> String {
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
    tell("tokens", &tokens(&run["usage"]));
    tell("cost", &cost(&run["usage"]));
    tell("input", &block(&run["input"]));
    tell("output", &block(&run["output"]));
    tell("error", &failure(&run["error"]));
    tell("metadata", &block(&run["metadata"]));
    tell("page", page);
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

/// The larger unit of the age alone.
fn short_age(run: &Value, now: DateTime<Utc>) -> String {
    let age = age(run, now);
    match age.split_whitespace().collect::<Vec<_>>()[..] {
        [number, unit, ..] => format!("{number} {unit} ago"),
        _ => age,
    }
}

/// From the start to the end, or to now if it is still running.
fn took(run: &Value, now: DateTime<Utc>) -> String {
    let now = now.to_rfc3339();
    let ended = run["ended_at"].as_str().unwrap_or(&now);
    run["started_at"].as_str().and_then(|started| between(started, ended)).map(duration).unwrap_or_default()
}

/// What is known of a cost; a sum of which parts are not known is at least that much.
fn cost(usage: &Value) -> String {
    let is_partial = usage["is_partial"] == true;
    match usage["cost_usd"].as_f64() {
        Some(usd) => {
            let decimals = decimals(usd);
            format!("{}${usd:.decimals$}", if is_partial { "≥ " } else { "" })
        }
        None if is_partial => "unknown".to_owned(),
        None => String::new(),
    }
}

/// Enough for two digits of a small amount.
fn decimals(usd: f64) -> usize {
    match usd {
        usd if usd == 0.0 || usd >= 1.0 => 2,
        usd if usd >= 0.01 => 4,
        _ => 6,
    }
}

fn tokens(usage: &Value) -> String {
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    let part = |name: &str, what: &str| match count(name) {
        0 => String::new(),
        count => format!(", {count} {what}"),
    };
    if !usage.is_object() {
        return String::new();
    }
    let (read, written) = (part("cached_tokens", "cached"), part("cache_write_tokens", "written to the cache"));
    let (input, output, calls) = (count("input_tokens"), count("output_tokens"), count("calls"));
    let reasoning = part("reasoning_tokens", "reasoning");
    format!("{input} in{read}{written}; {output} out{reasoning}; {calls} call{}", if calls == 1 { "" } else { "s" })
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

/// The error, its stack and its causes, each on lines of its own.
fn failure(error: &Value) -> String {
    let told = Failure::read(error).map(|failure| failure.block()).unwrap_or_default();
    clip(&clean_lines(&told), FAILURE_CHARS_MAX)
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
            "metadata": {}, "usage": {"calls": 2, "input_tokens": 1200, "cached_tokens": 200, "cache_write_tokens": 0,
            "output_tokens": 300, "reasoning_tokens": 0, "cost_usd": 0.0055, "is_partial": true}})
    }

    fn plain_list(runs: &[Value]) -> String {
        anstream::adapter::strip_str(&list(runs, now(), None)).to_string()
    }

    #[test]
    fn the_table_has_a_line_for_each_run() {
        let table = plain_list(&[run(), run()]);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], ["RUN", "STATUS", "AGENT", "TITLE", "CREATED", "TOOK", "EVENTS", "COST"]);
        assert_eq!(
            lines[1].join(" "),
            "0198c0de-0000-7000-8000-000000000001 running, stalled coder Fix the build 5 m 00 s ago 4 m 50 s 12 ≥ $0.005500"
        );
    }

    #[test]
    fn the_title_is_followed_by_what_is_below_and_how_it_went() {
        let mut one = run();
        one["descendants"] = json!({"count": 2, "worst_status": "failed"});
        one["excerpt"] = json!({"kind": "error", "text": "it\nbroke"});
        assert_eq!(about(&one), "Fix the build (+2 runs) · it broke");
        one["title"] = Value::Null;
        one["descendants"] = json!({"count": 0, "worst_status": null});
        assert_eq!(about(&one), "it broke");
    }

    #[test]
    fn eighty_columns_show_agent_and_title_and_an_id_that_can_be_copied() {
        let mut other = run();
        other["run_id"] = json!("0198c0de-0000-7abc-8000-000000000002");
        other["status"] = json!("interrupted");
        other["agent"] = json!("a-researcher-of-things");
        other["title"] = json!("What the quarter has cost, and what of it was planned");
        other["stalled"] = json!(false);
        let table = anstream::adapter::strip_str(&list(&[run(), other], now(), Some(80))).to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3, "{table}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{table}");
        assert!(lines[1].starts_with("0198c0de-0000-70  running, stalled  coder"), "{table}");
        assert!(lines[2].starts_with("0198c0de-0000-7a  interrupted       a-researche…  What the q"), "{table}");
        assert!(lines[1].contains("Fix the build") && lines[2].ends_with("5 m ago"), "{table}");
    }

    #[test]
    fn the_details_leave_out_what_is_not_known() {
        let details = details(&run(), "http://127.0.0.1:7717/runs/1", now());
        let expected = "run       0198c0de-0000-7000-8000-000000000001\ntitle     Fix the build\nstatus    running, stalled\n\
            agent     coder (agent)\ntags      a b\ncreated   2025-11-13T01:55:00Z  5 m 00 s ago\ntook      4 m 50 s\n\
            events    12\ntokens    1200 in, 200 cached; 300 out; 2 calls\ncost      ≥ $0.005500\ninput     {\n            \"n\": 1\n          }\n\
            page      http://127.0.0.1:7717/runs/1\n";
        assert_eq!(details, expected);
    }

    #[test]
    fn an_error_is_shown_with_its_stack_as_lines() {
        let stack = "  File \"report.py\", line 3, in build\n    row[\"id\"]";
        let mut run = json!({"run_id": "0198c0de-0000-7000-8000-000000000001", "status": "failed"});
        run["error"] = json!({"type": "KeyError", "message": "'id'", "stack": stack, "cause": "no row"});
        let expected = "\nerror     KeyError: 'id'\n              File \"report.py\", line 3, in build\n                row[\"id\"]\n          caused by no row\n";
        assert!(details(&run, "", now()).ends_with(expected), "{}", details(&run, "", now()));
    }

    #[test]
    fn nothing_a_run_holds_reaches_the_terminal_raw() {
        let hostile = json!("\u{1b}]0;x\u{7}\u{1b}[2J\r\u{9b}1m");
        let mut run = run();
        for name in ["run_id", "status", "agent", "title", "created_at", "started_at", "input", "error", "last_seq"] {
            run[name] = hostile.clone();
        }
        run["tags"] = json!([hostile]);
        for text in [plain_list(&[run.clone()]), details(&run, "", now())] {
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}
