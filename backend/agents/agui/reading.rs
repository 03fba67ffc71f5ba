//! Parses events, converts those that are neither texts nor calls, and derives the output of a run.

use std::ops::Index;

use serde_json::{Map, Value, json};

use super::{entry::Entry, spans::fitted, talk::Talk};
use crate::domain::lenient::{self, Unread, UnreadMembers};

/// Prefixes of the types of text and call events, and the members of these, all of them strings.
const PIECES: [&str; 3] = ["TEXT_MESSAGE_", "REASONING_MESSAGE_", "TOOL_CALL_"];
const MEMBERS: [&str; 9] =
    ["messageId", "role", "delta", "name", "subagentRunId", "toolCallId", "toolCallName", "parentMessageId", "content"];
/// Characters kept of names and codes that an endpoint chose.
const WORD_CHARS_MAX: usize = 128;
/// Maximum nesting of an event that is read as JSON, levels: it is recorded some levels deeper.
const DEPTH_MAX: usize = 56;

/// The `data` of one event.
pub(super) struct Event<'a> {
    pub(super) value: Value,
    /// Not decoded: it may end within a surrogate pair that the next event completes.
    pub(super) delta: Option<Unread<'a>>,
}

impl Index<&str> for Event<'_> {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        &self.value[name]
    }
}

impl<'a> Event<'a> {
    /// Data that is not JSON, or is nested too deeply, is an event of no known type. Of a text or call event, the
    /// readable members are used.
    pub(super) fn read(data: &'a str) -> Self {
        let members = Unread::parse(data).map(Unread::members).unwrap_or_default();
        let whole = lenient::value(data.as_bytes()).ok().filter(|event| is_shallow(event, DEPTH_MAX));
        let value = whole.or_else(|| partly(&members)).unwrap_or_else(|| Value::from(data));
        Self { value, delta: members.get("delta") }
    }
}

/// The readable members of a text or call event.
fn partly(members: &UnreadMembers<'_>) -> Option<Value> {
    let kind = members.text("type").filter(|kind| PIECES.iter().any(|family| kind.starts_with(family)))?;
    let known = MEMBERS.iter().filter_map(|name| Some((*name, members.text(name)?)));
    Some(known.chain([("type", kind)]).map(|(name, text)| (name.to_owned(), Value::from(text))).collect())
}

fn is_shallow(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| is_shallow(item, depth - 1)),
        Value::Object(members) => depth > 0 && members.values().all(|member| is_shallow(member, depth - 1)),
        _ => true,
    }
}

/// A name or code from the endpoint, without control characters and cut to [`WORD_CHARS_MAX`].
pub(super) fn word(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(WORD_CHARS_MAX).collect()
}

/// The entry for an event of the family `agui`; `None` for an unknown type.
pub(super) fn noted(kind: &str, event: &Value) -> Option<Entry> {
    Some(match kind {
        "STATE_SNAPSHOT" => Entry::State { snapshot: event["snapshot"].clone() },
        "STATE_DELTA" => Entry::StateDelta { delta: event["delta"].clone() },
        "MESSAGES_SNAPSHOT" => Entry::Messages { messages: event["messages"].as_array()?.clone() },
        "REASONING_ENCRYPTED_VALUE" => Entry::Signed { payload: named_as_ours(event) },
        "CUSTOM" => {
            let payload = json!({"name": event["name"], "value": event["value"]});
            Entry::Noted { word: "custom".to_owned(), payload }
        }
        "RAW" => {
            let mut payload = json!({"event": event["event"]});
            if let Some(source) = event.get("source") {
                payload["source"] = source.clone();
            }
            Entry::Noted { word: "raw".to_owned(), payload }
        }
        "ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA" | "SUBAGENT_STARTED" | "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => {
            Entry::Noted { word: kind.to_ascii_lowercase(), payload: named_as_ours(event) }
        }
        _ => return None,
    })
}

/// The members of an event except its type and time, named in snake case: `toolCallId` becomes `tool_call_id`.
fn named_as_ours(event: &Value) -> Value {
    let mut payload = Map::new();
    for (name, value) in event.as_object().into_iter().flatten() {
        if matches!(name.as_str(), "type" | "timestamp") {
            continue;
        }
        let mut ours = String::with_capacity(name.len() + 4);
        for c in name.chars() {
            if c.is_ascii_uppercase() {
                ours.push('_');
            }
            ours.push(c.to_ascii_lowercase());
        }
        payload.insert(ours, value.clone());
    }
    Value::Object(payload)
}

/// The name of a tool that was called in an earlier run.
pub(super) fn earlier_name(talk: &Talk, id: &str) -> String {
    let calls = talk.messages.iter().rev().filter_map(|message| message["toolCalls"].as_array()).flatten();
    let name = calls.into_iter().find(|call| call["id"] == id).and_then(|call| call["function"]["name"].as_str());
    word(name.unwrap_or("unnamed"))
}

/// The output of a run: the endpoint's result or, without one, its last text and the calls that wait for the client.
pub(super) fn output(talk: &Talk, result: &Value) -> Value {
    if !result.is_null() {
        return result.clone();
    }
    let is_of_turn = |message: &Value| {
        let is_in = |id: &str| talk.turn.spans.contains(fitted(id).as_str()) || talk.turn.brought.contains(id);
        message["id"].as_str().is_some_and(is_in)
    };
    let has_text = |message: &Value| message["content"].as_str().is_some_and(|text| !text.is_empty());
    let is_answer = |message: &&Value| message["role"] == "assistant" && has_text(message) && is_of_turn(message);
    let last =
        talk.messages.iter().rev().find(is_answer).map_or_else(|| json!(""), |message| message["content"].clone());
    let calls: Vec<Value> = talk
        .open_calls()
        .map(|(_, called)| json!({"id": called.span, "name": called.name, "args": called.args}))
        .collect();
    if calls.is_empty() { json!({"response": last}) } else { json!({"response": last, "tool_calls": calls}) }
}
