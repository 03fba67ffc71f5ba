//! A one-line summary of an event: what a person wants to know of its payload.

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::render::{clean, clip, duration, from_ms};

/// Longest summary, characters, when no terminal sets a narrower one.
const GIST_CHARS_MAX: usize = 400;
/// Longest arguments of a tool call inside a summary, characters.
const ARGS_CHARS_MAX: usize = 120;

/// A line about an event's payload. Clean, and bounded whatever the payload contains.
pub(super) fn summarize(event_type: &str, payload: &Value) -> String {
    // A large payload is in an artifact; the event keeps the beginning of it.
    if payload["$artifact"].is_object() {
        let size = payload["$artifact"]["size"].as_u64().unwrap_or_default();
        return line([Some(format!("[{size} bytes stored as an artifact]")), text(payload, &["preview"])]);
    }
    let (family, action) = event_type.split_once('.').unwrap_or((event_type, ""));
    let told = payload["duration_ms"].as_f64().map(|ms| format!("({})", duration(from_ms(ms))));
    let error = || text(payload, &["error", "message", "reason"]).map(|error| format!("error: {error}"));
    match (family, action) {
        ("run", "created") => line([text(payload, &["title", "input"])]),
        ("run", "completed") => line([text(payload, &["output"])]),
        ("run" | "step", "failed") => line([text(payload, &["name"]), error(), told]),
        ("run", _) => line([text(payload, &["reason", "message"])]),
        ("tool", "started") => line([Some(call(payload))]),
        ("tool", "completed") => {
            let result = text(payload, &["result", "output"]).map(|result| format!("→ {result}"));
            line([text(payload, &["name"]), told, result])
        }
        ("tool", "failed") => line([text(payload, &["name"]), told, error()]),
        ("step", _) => line([text(payload, &["name", "title"]), told]),
        ("worker", _) => {
            let child = text(payload, &["run_id"]).map(|run_id| format!("run {run_id}"));
            line([text(payload, &["agent", "name", "title"]), told, text(payload, &["summary"]), error(), child])
        }
        ("message" | "reasoning", "completed") => {
            // What people, tools and prompts said reads like an answer otherwise.
            let who = text(payload, &["role"]).filter(|role| role != "assistant").map(|role| format!("{role}:"));
            line([who, text(payload, &["content", "text", "parts"]), usage(payload)])
        }
        ("artifact", _) => {
            let size = payload["size"].as_u64().map(|size| format!("{size} bytes"));
            line([text(payload, &["name"]), text(payload, &["media_type"]), size])
        }
        ("interrupt", "requested") => {
            or_json(line([text(payload, &["message", "prompt", "question", "reason", "value"])]), payload)
        }
        ("interrupt", _) => line([text(payload, &["decision"]), text(payload, &["value"])]),
        ("log", _) => or_json(line([text(payload, &["message", "text"])]), payload),
        _ => or_json(String::new(), payload),
    }
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

/// The payload itself if there is no better summary.
fn or_json(line_of_it: String, payload: &Value) -> String {
    let bare = payload.is_null() || payload.as_object().is_some_and(serde_json::Map::is_empty);
    if line_of_it.is_empty() && !bare { line([Some(short(payload))]) } else { line_of_it }
}

fn line<const N: usize>(parts: [Option<String>; N]) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.trim().is_empty()).collect();
    clip(clean(&parts.join(" ")).trim(), GIST_CHARS_MAX)
}

/// `search(q: "x", limit: 3)`
fn call(payload: &Value) -> String {
    let name = text(payload, &["name"]).unwrap_or_else(|| "tool".to_owned());
    let args = match &payload["args"] {
        Value::Null => String::new(),
        Value::Object(args) => {
            let args: Vec<String> = args.iter().map(|(name, value)| format!("{name}: {}", short(value))).collect();
            args.join(", ")
        }
        other => short(other),
    };
    format!("{name}({})", clip(&args, ARGS_CHARS_MAX))
}

/// The first of these members that is not empty, as text.
fn text(payload: &Value, names: &[&str]) -> Option<String> {
    names.iter().map(|name| plain(&payload[*name])).find(|text| !text.is_empty())
}

/// Text as text, content parts as their texts, an error as its message, anything else as JSON.
fn plain(value: &Value) -> String {
    let told = match value {
        Value::Null => String::new(),
        Value::String(text) => clip(text, GIST_CHARS_MAX),
        Value::Array(parts) if parts.iter().any(|part| part["text"].is_string()) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            clip(&texts.join(" "), GIST_CHARS_MAX)
        }
        Value::Object(_) => match ["message", "text", "detail"].iter().find_map(|name| value[*name].as_str()) {
            Some(text) => clip(text, GIST_CHARS_MAX),
            None => short(value),
        },
        other => short(other),
    };
    if told == "{}" || told == "[]" { String::new() } else { told }
}

fn short(value: &Value) -> String {
    clip(&value.to_string(), GIST_CHARS_MAX)
}

fn usage(payload: &Value) -> Option<String> {
    let counted = |names: [&str; 2]| names.iter().find_map(|name| payload["usage"][*name].as_u64());
    let (sent, made) = (counted(["input_tokens", "prompt_tokens"]), counted(["output_tokens", "completion_tokens"]));
    (sent.is_some() || made.is_some())
        .then(|| format!("[{} + {} tokens]", sent.unwrap_or_default(), made.unwrap_or_default()))
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
                assert!(!line.chars().any(char::is_control) && line.chars().count() <= GIST_CHARS_MAX, "{event_type}");
            }
        }
    }
}
