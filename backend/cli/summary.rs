//! A one-line summary of an event for a terminal: its title, with durations and sizes in words.

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::render::{duration, from_ms};
use crate::domain::{
    limits::TITLE_PART_CHARS_MAX,
    title::{self, Part},
};

/// A line about an event's payload. Clean and bounded for any payload.
pub(super) fn summarize(event_type: &str, payload: &Value) -> String {
    let parts = title::parts(event_type, payload).into_iter().map(|part| match part {
        Part::Text(text) => text,
        Part::DurationMs(ms) => format!("({})", duration(from_ms(ms))),
        Part::Tokens(sent, made) => format!("[{sent} + {made} tokens]"),
        Part::Stored(size) => format!("[{size} bytes stored as an artifact]"),
    });
    // A terminal that has a narrower width cuts it further.
    title::line(parts, TITLE_PART_CHARS_MAX)
}

/// The colour of an event's type: failures stand out, ends differ from beginnings.
pub(super) fn style(event_type: &str) -> Style {
    let (family, action) = event_type.split_once('.').unwrap_or((event_type, ""));
    let color = |color: AnsiColor| color.on_default();
    match (family, action) {
        (_, "failed" | "error") => color(AnsiColor::Red).bold(),
        ("run", "cancelled") | ("log", "warn") => color(AnsiColor::Yellow),
        ("interrupt", _) | ("run", "interrupted" | "waiting") => color(AnsiColor::Magenta).bold(),
        ("run", "completed") => color(AnsiColor::Green).bold(),
        ("run", _) => Style::new().bold(),
        (_, "completed") => color(AnsiColor::Green),
        ("tool" | "step" | "worker", _) => color(AnsiColor::Cyan),
        ("message", _) => Style::new(),
        ("log" | "reasoning" | "state", _) => Style::new().dimmed(),
        _ => color(AnsiColor::Blue),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_type_tells_what_matters() {
        for (event_type, payload, expected) in [
            ("run.created", json!({"title": "Weekly report", "input": {"q": 1}}), "Weekly report"),
            ("run.created", json!({"title": null, "input": {"q": 1}}), r#"{"q":1}"#),
            ("run.started", json!({}), ""),
            ("run.completed", json!({"output": {"text": "done"}}), "done"),
            ("run.failed", json!({"error": {"message": "no money"}}), "error: no money"),
            ("run.cancelled", json!({"reason": "enough"}), "enough"),
            ("tool.started", json!({"name": "search", "args": {"q": "x", "n": 3}}), r#"search(q: "x", n: 3)"#),
            (
                "tool.completed",
                json!({"name": "search", "result": "7 hits", "duration_ms": 1234.5}),
                "search (1.2 s) → 7 hits",
            ),
            ("tool.failed", json!({"name": "search", "error": "timeout"}), "search error: timeout"),
            (
                "tool.failed",
                json!({"name": "search", "error": {"type": "AssertionError", "message": ""}}),
                "search error: AssertionError",
            ),
            ("step.failed", json!({"name": "plan"}), "plan"),
            ("step.completed", json!({"name": "plan", "duration_ms": 12}), "plan (12 ms)"),
            ("worker.spawned", json!({"run_id": "r1", "agent": "coder"}), "coder run r1"),
            (
                "message.completed",
                json!({"role": "assistant", "content": [{"type": "text", "text": "hello"}],
                "usage": {"input_tokens": 5, "output_tokens": 7}}),
                "hello [5 + 7 tokens]",
            ),
            ("message.completed", json!({"role": "user", "content": "hello"}), "user: hello"),
            (
                "artifact.created",
                json!({"name": "a.txt", "media_type": "text/plain", "size": 9}),
                "a.txt text/plain 9 bytes",
            ),
            ("interrupt.requested", json!({"message": "delete it?"}), "delete it?"),
            ("log.info", json!({"message": "tick"}), "tick"),
            ("custom.x", json!({"b": 1}), r#"{"b":1}"#),
            ("custom.x", json!({}), ""),
            (
                "custom.x",
                json!({"$artifact": {"size": 90_000}, "preview": "first"}),
                "[90000 bytes stored as an artifact] first",
            ),
        ] {
            assert_eq!(summarize(event_type, &payload), expected, "{event_type}");
        }
    }

    #[test]
    fn no_payload_reaches_the_terminal_or_overflows_the_line() {
        let hostile = "\u{1b}]0;x\u{7}\n".repeat(10_000);
        for event_type in ["run.created", "tool.started", "message.completed", "log.info", "custom.x", "run", ""] {
            for payload in [
                json!({"title": hostile, "name": hostile, "args": {&hostile: hostile}, "content": hostile}),
                json!({"message": hostile}),
                json!([hostile]),
                json!(hostile),
            ] {
                let line = summarize(event_type, &payload);
                assert!(
                    !line.chars().any(char::is_control) && line.chars().count() <= TITLE_PART_CHARS_MAX,
                    "{event_type}"
                );
            }
        }
    }
}
