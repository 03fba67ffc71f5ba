//! Runs on a terminal.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Row, Table, presets};
use serde_json::Value;

use crate::{
    cli::render::{between, clean, clean_lines, clip, duration},
    domain::{failure::Failure, json::Json, run::Status},
    wire::runs::{Run, Spending},
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
pub(super) fn list(runs: &[Run], now: DateTime<Utc>, width: Option<usize>) -> String {
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
            Cell::new(run.run_id.to_string().chars().take(id_chars).collect::<String>()),
            status(run),
            Cell::new(clip(&text(run.agent.as_ref()), if is_narrow { AGENT_CHARS_MAX / 2 } else { AGENT_CHARS_MAX })),
            Cell::new(clip(&about(run), TITLE_CHARS_MAX)),
            Cell::new(if is_narrow { short_age(run, now) } else { age(run, now) }),
            Cell::new(took(run, now)),
            Cell::new(run.last_seq),
            Cell::new(cost(run.usage.as_ref())),
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
fn about(run: &Run) -> String {
    let below = run.descendants.as_ref().map(|below| below.count).filter(|count| *count > 0);
    let below = below.map(|count| format!("(+{count} {})", if count == 1 { "run" } else { "runs" }));
    let named = [Some(text(run.title.as_ref())), below].into_iter().flatten().filter(|text| !text.is_empty());
    let named = named.collect::<Vec<_>>().join(" ");
    let excerpt = text(run.excerpt.as_ref().map(|excerpt| &excerpt.text));
    let all = [named, excerpt].into_iter().filter(|text| !text.is_empty());
    all.collect::<Vec<_>>().join(" · ")
}

/// Characters of the ids that distinguish these runs.
fn short_id_chars(runs: &[Run]) -> usize {
    let mut ids: Vec<String> = runs.iter().map(|run| run.run_id.to_string()).collect();
    ids.sort_unstable();
    let shared = |(one, other): (&String, &String)| one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let most = ids.windows(2).map(|pair| shared((&pair[0], &pair[1]))).max().unwrap_or_default();
    // One more, which differs; never ends with a hyphen.
    let chars = (most + 1).max(SHORT_ID_CHARS_MIN);
    if matches!(chars, 14 | 19 | 24) { chars + 1 } else { chars }
}

/// One run, a line for each known field.
pub(super) fn details(run: &Run, page: &str, now: DateTime<Utc>) -> String {
    let mut out = String::new();
    let mut tell = |name: &str, value: &str| {
        if !value.is_empty() {
            _ = writeln!(out, "{name:<9} {}", value.replace('\n', "\n          "));
        }
    };
    tell("run", &run.run_id.to_string());
    tell("title", &text(run.title.as_ref()));
    tell("status", &status_word(run));
    let (role, agent) = (run.role.as_str(), text(run.agent.as_ref()));
    tell("agent", &if agent.is_empty() { role.to_owned() } else { format!("{agent} ({role})") });
    tell("thread", &text(run.thread_id.as_ref()));
    tell("session", &text(run.session_id.as_ref()));
    tell("parent", &run.parent_run_id.map(|run_id| run_id.to_string()).unwrap_or_default());
    tell("tags", &clean(&run.tags.join(" ")));
    tell("created", &[clean(&run.created_at), age(run, now)].join("  "));
    tell("took", &took(run, now));
    tell("events", &run.last_seq.to_string());
    tell("tokens", &run.usage.as_ref().map(tokens).unwrap_or_default());
    tell("cost", &cost(run.usage.as_ref()));
    tell("input", &block(run.input.as_ref()));
    tell("output", &block(run.output.as_ref()));
    tell("error", &failure(run.error.as_ref()));
    tell("metadata", &block(Some(&run.metadata)));
    tell("page", page);
    out
}

fn status(run: &Run) -> Cell {
    let color = match run.status {
        _ if run.stalled => Color::Yellow,
        Status::Completed => Color::Green,
        Status::Failed => Color::Red,
        Status::Cancelled => Color::Yellow,
        Status::Waiting | Status::Interrupted => Color::Magenta,
        Status::Running => Color::Cyan,
        Status::Queued => Color::Reset,
    };
    Cell::new(status_word(run)).fg(color)
}

fn status_word(run: &Run) -> String {
    let status = run.status.as_str();
    if run.stalled { format!("{status}, stalled") } else { status.to_owned() }
}

fn age(run: &Run, now: DateTime<Utc>) -> String {
    between(&run.created_at, &now.to_rfc3339()).map(|age| format!("{} ago", duration(age))).unwrap_or_default()
}

/// The larger unit of the age alone.
fn short_age(run: &Run, now: DateTime<Utc>) -> String {
    let age = age(run, now);
    match age.split_whitespace().collect::<Vec<_>>()[..] {
        [number, unit, ..] => format!("{number} {unit} ago"),
        _ => age,
    }
}

/// From the start to the end, or to now if it is still running.
fn took(run: &Run, now: DateTime<Utc>) -> String {
    let now = now.to_rfc3339();
    let ended = run.ended_at.as_ref().unwrap_or(&now);
    run.started_at.as_ref().and_then(|started| between(started, ended)).map(duration).unwrap_or_default()
}

/// The known cost; if parts of the sum are unknown, a lower bound.
fn cost(usage: Option<&Spending>) -> String {
    let is_partial = usage.is_some_and(|usage| usage.is_partial);
    match usage.and_then(|usage| usage.cost_usd) {
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

fn tokens(Spending { calls, tokens, .. }: &Spending) -> String {
    let part = |count: u64, what: &str| if count == 0 { String::new() } else { format!(", {count} {what}") };
    let (input, output) = (tokens.input_tokens, tokens.output_tokens);
    let (read, written) =
        (part(tokens.cached_tokens, "cached"), part(tokens.cache_write_tokens, "written to the cache"));
    let reasoning = part(tokens.reasoning_tokens, "reasoning");
    format!("{input} in{read}{written}; {output} out{reasoning}; {calls} call{}", if *calls == 1 { "" } else { "s" })
}

fn text(text: Option<&String>) -> String {
    text.map(|text| clean(text)).unwrap_or_default()
}

/// Text as its lines, anything else as indented JSON.
fn block(json: Option<&Json>) -> String {
    let text = match json.map(read).unwrap_or_default() {
        Value::Null => return String::new(),
        Value::Object(members) if members.is_empty() => return String::new(),
        Value::String(text) => clean_lines(&text),
        other => clean_lines(&serde_json::to_string_pretty(&other).unwrap_or_default()),
    };
    clip(&text, VALUE_CHARS_MAX)
}

fn read(json: &Json) -> Value {
    serde_json::from_str(json.as_str()).unwrap_or_default()
}

/// The error, its stack and its causes, each on lines of its own.
fn failure(error: Option<&Json>) -> String {
    let lines = error.and_then(|error| Failure::read(&read(error))).map(|failure| failure.block()).unwrap_or_default();
    clip(&clean_lines(&lines), FAILURE_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        cli::fake::sample_run,
        wire::runs::{Descendants, Excerpt, ExcerptKind},
    };

    fn now() -> DateTime<Utc> {
        DateTime::parse_from_rfc3339("2025-11-13T02:00:00Z").unwrap().to_utc()
    }

    fn run() -> Run {
        serde_json::from_value(sample_run()).unwrap()
    }

    fn plain_list(runs: &[Run]) -> String {
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
        one.descendants = Some(Descendants { count: 2, worst_status: Some(Status::Failed) });
        one.excerpt = Some(Excerpt { kind: ExcerptKind::Error, text: "it\nbroke".to_owned() });
        assert_eq!(about(&one), "Fix the build (+2 runs) · it broke");
        one.title = None;
        one.descendants = Some(Descendants::default());
        assert_eq!(about(&one), "it broke");
    }

    #[test]
    fn eighty_columns_show_agent_and_title_and_an_id_that_can_be_copied() {
        let mut other = run();
        other.run_id = "0198c0de-0000-7abc-8000-000000000002".parse().unwrap();
        (other.status, other.stalled) = (Status::Interrupted, false);
        other.agent = Some("a-researcher-of-things".to_owned());
        other.title = Some("What the quarter has cost, and what of it was planned".to_owned());
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
        let error = json!({"type": "KeyError", "message": "'id'", "stack": stack, "cause": "no row"});
        let run = Run { error: Some(Json::of(&error)), ..run() };
        let expected = "\nerror     KeyError: 'id'\n              File \"report.py\", line 3, in build\n                row[\"id\"]\n          caused by no row\n";
        assert!(details(&run, "", now()).ends_with(expected), "{}", details(&run, "", now()));
    }

    #[test]
    fn nothing_a_run_holds_reaches_the_terminal_raw() {
        let hostile = "\u{1b}]0;x\u{7}\u{1b}[2J\r\u{9b}1m".to_owned();
        let (text, json) = (Some(hostile.clone()), Some(Json::of(&hostile)));
        let mut run = Run { agent: text.clone(), title: text.clone(), started_at: text.clone(), ..run() };
        (run.thread_id, run.session_id, run.tags) = (text.clone(), text, vec![hostile.clone()]);
        (run.created_at, run.input, run.error) = (hostile, json.clone(), json);
        for text in [details(&run, "", now()), plain_list(&[run])] {
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}
