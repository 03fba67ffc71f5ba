//! A saved session for people: on a terminal, and as Markdown.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use comfy_table::{Attribute, Cell, ContentArrangement, Row, Table, presets};
use serde_json::Value;

use crate::{
    cli::render::{between, clean, clean_lines, clip, duration},
    domain::{
        event::timestamp,
        transcript::{
            SavedSession,
            message::{calls_of, named_role, role_of, text_of},
        },
    },
    wire::saved_sessions::Saved,
};

/// Longest text of a message in the table, characters.
const TEXT_CHARS_MAX: usize = 60;
/// Longest arguments of a call, characters; the file has all of them.
const ARGS_CHARS_MAX: usize = 400;

/// A table of sessions, one line each.
pub(super) fn table(sessions: &[Saved], now: DateTime<Utc>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).enforce_styling();
    let head = ["NAME", "MESSAGES", "CONTENT", "SAVED", "ABOUT"];
    table.set_header(Row::from(head.map(|name| Cell::new(name).add_attribute(Attribute::Dim)).to_vec()));
    for session in sessions {
        let age = between(&session.updated_at, &now.to_rfc3339());
        let about = [&session.description, &session.first_message].into_iter().flatten();
        let about = about.map(|text| clean(text)).find(|text| !text.is_empty());
        let mut row = Row::from(vec![
            Cell::new(clean(&session.name)),
            Cell::new(session.message_count),
            Cell::new(if session.fallback { "messages only" } else { "in full" }),
            Cell::new(age.map(|age| format!("{} ago", duration(age))).unwrap_or_default()),
            Cell::new(clip(&about.unwrap_or_default(), TEXT_CHARS_MAX)),
        ]);
        row.max_height(1);
        table.add_row(row);
    }
    format!("{}\n", table.trim_fmt())
}

/// A session on a terminal.
pub(super) fn shown(session: &SavedSession) -> String {
    let mut out = format!("{}  {}\n", session.name, about(session));
    if let Some(description) = &session.description {
        _ = writeln!(out, "{}", clean_lines(description));
    }
    for message in &session.thread.messages {
        _ = writeln!(out, "\n{}", speaker(message));
        for line in clean_lines(&text_of(message)).lines() {
            _ = writeln!(out, "  {line}");
        }
        for (name, args) in calls(message) {
            _ = writeln!(out, "  → {name} {args}");
        }
    }
    out
}

/// A session as Markdown.
pub(super) fn markdown(session: &SavedSession) -> String {
    let mut out = format!("# {}\n\n", session.name);
    if let Some(description) = &session.description {
        _ = write!(out, "{}\n\n", clean_lines(description));
    }
    _ = writeln!(out, "*{}*", about(session));
    for message in &session.thread.messages {
        _ = write!(out, "\n## {}\n\n", speaker(message));
        let text = clean_lines(&text_of(message));
        if !text.is_empty() {
            _ = writeln!(out, "{}", text.trim_end());
        }
        let calls = calls(message);
        if !calls.is_empty() && !text.is_empty() {
            out.push('\n');
        }
        for (name, args) in calls {
            _ = writeln!(out, "- called `{name}` with `{}`", args.replace('`', "'"));
        }
    }
    out
}

fn about(session: &SavedSession) -> String {
    let how = if session.thread.is_fallback() { "with its messages only" } else { "in full" };
    format!("{}, saved {} {how}", messages(session.message_count), timestamp(session.updated_at))
}

/// The number of messages, in words.
pub(super) fn messages(count: usize) -> String {
    format!("{count} {}", if count == 1 { "message" } else { "messages" })
}

fn speaker(message: &Value) -> String {
    clean(role_of(message).or_else(|| named_role(message)).unwrap_or_default())
}

fn calls(message: &Value) -> Vec<(String, String)> {
    let arguments = |args: &Value| clip(&clean(&args.to_string()), ARGS_CHARS_MAX);
    calls_of(message).iter().map(|call| (clean(&call.name), arguments(&call.args))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::transcript::SavedThread;

    fn session() -> SavedSession {
        let call = json!({"id": "1", "name": "search", "args": {"q": "`a`"}});
        let messages = vec![
            json!({"role": "user", "content": "find\nit \u{1b}[2J"}),
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
            json!({"role": "assistant", "content": [{"type": "text", "text": "found"}]}),
        ];
        let description = Some("a \u{1b}[31mplan".to_owned());
        let at = DateTime::from_timestamp(1, 0).unwrap();
        SavedSession::new("trip".parse().unwrap(), description, SavedThread::fallback(messages), at)
    }

    #[test]
    fn a_session_reads_like_a_conversation_and_steers_no_terminal() {
        assert_eq!(
            shown(&session()),
            "trip  3 messages, saved 1970-01-01T00:00:01.000000Z with its messages only\na plan\n\n\
             user\n  find\n  it \n\nassistant\n  → search {\"q\":\"`a`\"}\n\nassistant\n  found\n"
        );
        let text = markdown(&session());
        assert!(text.starts_with("# trip\n\na plan\n\n*3 messages, saved"), "{text}");
        assert!(text.contains("\n## user\n\nfind\nit\n"), "{text}");
        assert!(text.contains("\n## assistant\n\n- called `search` with `{\"q\":\"'a'\"}`\n"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn a_list_has_a_line_for_each() {
        let row = |name: &str, message_count, fallback| Saved {
            name: name.to_owned(),
            description: None,
            created_at: "1970-01-01T00:00:01Z".to_owned(),
            updated_at: "1970-01-01T00:00:01Z".to_owned(),
            message_count,
            first_message: Some("hi".to_owned()),
            fallback,
        };
        let rows = [row("a", 3, true), Saved { description: Some("plan".to_owned()), ..row("b", 4, false) }];
        let text = table(&rows, DateTime::from_timestamp(11, 0).unwrap());
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["a", "3", "messages", "only", "10.0", "s", "ago", "hi"]);
        assert_eq!(lines[2], ["b", "4", "in", "full", "10.0", "s", "ago", "plan"]);
    }
}
