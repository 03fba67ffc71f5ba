//! The title of an event: a one-line summary of its payload for people.
//!
//! Derived only here: the index of a run and the output of commands are made from its parts. The shape of a payload is
//! not guaranteed, so every member is optional and every part is clipped.

use serde_json::Value;

use super::{
    event::EventKind,
    failure::Failure,
    limits::TITLE_PART_CHARS_MAX,
    readable::{clean, clip},
    usage::Usage,
};

/// Longest arguments of a tool call in a title, characters.
const ARGS_CHARS_MAX: usize = 120;

/// A part of a title.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    /// Duration stated in the payload, milliseconds.
    DurationMs(f64),
    /// Input and output tokens of a model call.
    Tokens(u64, u64),
    /// Size in bytes of a payload that became an artifact.
    Stored(u64),
}

/// The parts of an event's title, in order.
pub fn parts(event_type: &str, payload: &Value) -> Vec<Part> {
    // A large payload is in an artifact; the event keeps its beginning.
    if payload["$artifact"].is_object() {
        let size = payload["$artifact"]["size"].as_u64().unwrap_or_default();
        return some([Some(Part::Stored(size)), text(payload, &["preview"])]);
    }
    let Some(kind) = EventKind::parse(event_type) else { return or_json(Vec::new(), payload) };
    let duration = payload["duration_ms"].as_f64().map(Part::DurationMs);
    let error =
        || Failure::of_event(payload).map(|error| Part::Text(clip(&format!("error: {error}"), TITLE_PART_CHARS_MAX)));
    match kind {
        EventKind::RunCreated => some([text(payload, &["title", "input"])]),
        EventKind::RunCompleted => some([text(payload, &["output"])]),
        EventKind::RunFailed | EventKind::StepFailed => some([text(payload, &["name"]), error(), duration]),
        EventKind::RunStarted
        | EventKind::RunWaiting
        | EventKind::RunInterrupted
        | EventKind::RunResumed
        | EventKind::RunCancelled => some([text(payload, &["reason", "message"])]),
        EventKind::ToolStarted => vec![Part::Text(call(payload))],
        EventKind::ToolCompleted => {
            let result = words(payload, &["result", "output"]).map(|result| Part::Text(format!("→ {result}")));
            some([text(payload, &["name"]), duration, result])
        }
        EventKind::ToolFailed => some([text(payload, &["name"]), duration, error()]),
        EventKind::StepStarted | EventKind::StepCompleted => some([text(payload, &["name", "title"]), duration]),
        EventKind::WorkerSpawned | EventKind::WorkerCompleted | EventKind::WorkerFailed => {
            let child = words(payload, &["run_id"]).map(|run_id| Part::Text(format!("run {run_id}")));
            some([text(payload, &["agent", "name", "title"]), duration, text(payload, &["summary"]), error(), child])
        }
        EventKind::MessageCompleted | EventKind::ReasoningCompleted => {
            // Without its role, text of people, tools and prompts would read like an answer.
            let who = words(payload, &["role"]).filter(|role| role != "assistant");
            let who = who.map(|role| Part::Text(format!("{role}:")));
            some([who, text(payload, &["content", "text", "parts"]), tokens(payload)])
        }
        EventKind::ArtifactCreated => {
            let size = payload["size"].as_u64().map(|size| Part::Text(format!("{size} bytes")));
            some([text(payload, &["name"]), text(payload, &["media_type"]), size])
        }
        EventKind::InterruptRequested => {
            or_json(some([text(payload, &["message", "prompt", "question", "reason", "value"])]), payload)
        }
        EventKind::InterruptResolved => some([text(payload, &["decision"]), text(payload, &["value"])]),
        EventKind::LogDebug | EventKind::LogInfo | EventKind::LogWarn | EventKind::LogError => {
            or_json(some([text(payload, &["message", "text"])]), payload)
        }
        EventKind::MessageDelta
        | EventKind::ReasoningDelta
        | EventKind::StateCheckpointed
        | EventKind::StateCompacted => or_json(Vec::new(), payload),
    }
}

/// Joins the texts of parts into one clean line of at most `chars_max` characters.
pub fn line(parts: impl IntoIterator<Item = String>, chars_max: usize) -> String {
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.trim().is_empty()).collect();
    clip(clean(&parts.join(" ")).trim(), chars_max)
}

/// The payload itself if there is no better title.
fn or_json(parts: Vec<Part>, payload: &Value) -> Vec<Part> {
    let bare = payload.is_null() || payload.as_object().is_some_and(serde_json::Map::is_empty);
    if parts.is_empty() && !bare { vec![Part::Text(short(payload))] } else { parts }
}

fn some<const N: usize>(parts: [Option<Part>; N]) -> Vec<Part> {
    parts.into_iter().flatten().collect()
}

/// `search(q: "x", limit: 3)`
fn call(payload: &Value) -> String {
    let name = words(payload, &["name"]).unwrap_or_else(|| "tool".to_owned());
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

fn text(payload: &Value, names: &[&str]) -> Option<Part> {
    words(payload, names).map(Part::Text)
}

/// The first non-empty member of these, as text.
fn words(payload: &Value, names: &[&str]) -> Option<String> {
    names.iter().map(|name| plain(&payload[*name])).find(|text| !text.trim().is_empty())
}

/// Text as it is, content parts as their texts, an object by its message, anything else as JSON.
fn plain(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => clip(text, TITLE_PART_CHARS_MAX),
        Value::Array(parts) if parts.iter().any(|part| part["text"].is_string()) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            clip(&texts.join(" "), TITLE_PART_CHARS_MAX)
        }
        Value::Object(_) => match ["message", "text", "detail"].iter().find_map(|name| value[*name].as_str()) {
            Some(text) => clip(text, TITLE_PART_CHARS_MAX),
            None => short(value),
        },
        other => short(other),
    };
    if text == "{}" || text == "[]" { String::new() } else { text }
}

fn short(value: &Value) -> String {
    clip(&value.to_string(), TITLE_PART_CHARS_MAX)
}

fn tokens(payload: &Value) -> Option<Part> {
    Usage::read(&payload["usage"]).map(|usage| Part::Tokens(usage.input, usage.output))
}
