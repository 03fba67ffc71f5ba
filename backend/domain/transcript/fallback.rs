//! Rebuilds messages from the log, for a thread whose checkpoint cannot be read here.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::{
    message::{call_of, role_of},
    plain::{is_flat, values_in},
};
use crate::domain::{
    id::RunId,
    limits::{JSON_DEPTH_MAX, SAVED_FILE_BYTES_MAX, SAVED_VALUES_MAX},
};

/// An event of a thread's runs that belongs to its conversation.
#[derive(Clone, Debug)]
pub struct Logged {
    pub run: RunId,
    /// `true` for a `tool.started`, `false` for a `message.completed`.
    pub is_tool: bool,
    /// The id of the message or call.
    pub span: Option<String>,
    pub payload: Value,
}

/// The position of a call: index of its message, and index among the message's calls.
type MessagePosition = (usize, usize);

/// Turns events, run by run and in order, into messages.
#[derive(Debug, Default)]
pub struct MessageBuilder {
    messages: Vec<Value>,
    run: Option<RunId>,
    /// The index of the current run's first message.
    first: usize,
    /// Calls of the current run that are already in a message.
    placed: HashMap<String, MessagePosition>,
    /// Calls that wait for an assistant message, in order.
    waiting: Vec<Value>,
    /// The ids of the waiting calls.
    awaited: HashSet<String>,
    /// Bytes of JSON so far.
    bytes: usize,
    /// Number of JSON values so far.
    values: usize,
}

impl MessageBuilder {
    /// The number of messages so far.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether the messages exceed what a file may contain.
    pub fn is_too_much(&self) -> bool {
        self.bytes > SAVED_FILE_BYTES_MAX || self.values > SAVED_VALUES_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn push(&mut self, logged: Logged) {
        if self.run != Some(logged.run) {
            self.end_run();
            (self.run, self.first) = (Some(logged.run), self.messages.len());
        }
        if logged.is_tool { self.tool(logged) } else { self.message(&logged.payload) }
    }

    pub fn finish(mut self) -> Vec<Value> {
        self.end_run();
        self.messages
    }

    fn message(&mut self, payload: &Value) {
        let role = payload["role"].as_str().filter(|role| !role.is_empty()).unwrap_or("assistant").to_owned();
        let mut message = Map::new();
        message.insert("role".to_owned(), json!(role));
        message.insert("content".to_owned(), content_of(payload));
        for name in ["name", "tool_call_id"] {
            if let Some(value) = payload.get(name).filter(|value| value.is_string()) {
                message.insert(name.to_owned(), value.clone());
            }
        }
        let named = payload["tool_calls"].as_array().cloned().unwrap_or_default();
        let named = named
            .iter()
            .filter_map(call_of)
            .map(|call| json!({"id": call.id, "name": call.name, "args": flattened(call.args)}));
        self.take_in(Value::Object(message), Self::push_message);
        let at = self.messages.len() - 1;
        for call in named {
            self.take_in(call, |this, call| this.place(at, call));
        }
        if role_of(&self.messages[at]) == Some("assistant") {
            self.awaited.clear();
            for call in std::mem::take(&mut self.waiting) {
                self.place(at, call);
            }
        }
    }

    fn tool(&mut self, logged: Logged) {
        let Logged { span, payload, .. } = logged;
        let Some(name) = payload["name"].as_str().filter(|name| !name.is_empty()) else { return };
        let id = span.or_else(|| payload["tool_call_id"].as_str().map(str::to_owned));
        let args = flattened(payload.get("args").cloned().unwrap_or_else(|| json!({})));
        if let Some((message, call)) = id.as_ref().and_then(|id| self.placed.get(id)).copied() {
            // A message already named it; the event of the call has its arguments.
            self.take_in(args, |this, args| this.messages[message]["tool_calls"][call]["args"] = args);
        } else if id.as_ref().is_none_or(|id| self.awaited.insert(id.clone())) {
            self.take_in(json!({"id": id, "name": name, "args": args}), |this, call| this.waiting.push(call));
        }
    }

    /// Counts a value towards the bounds and keeps it.
    fn take_in(&mut self, value: Value, keep: impl FnOnce(&mut Self, Value)) {
        let text = value.to_string();
        self.bytes += text.len();
        self.values += values_in(text.as_bytes());
        keep(self, value);
    }

    fn push_message(&mut self, message: Value) {
        self.messages.push(message);
    }

    /// Adds a call to a message, unless the run already has it.
    fn place(&mut self, at: usize, call: Value) {
        let id = call["id"].as_str().map(str::to_owned);
        if id.as_ref().is_some_and(|id| self.placed.contains_key(id)) {
            return;
        }
        let Some(message) = self.messages[at].as_object_mut() else { return };
        let calls = message.entry("tool_calls").or_insert_with(|| json!([]));
        if let (Some(calls), Some(id)) = (calls.as_array(), id) {
            self.placed.insert(id, (at, calls.len()));
        }
        if let Some(calls) = calls.as_array_mut() {
            calls.push(call);
        }
    }

    /// Adds calls that no message followed to the last message of the run, or to a new one.
    fn end_run(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.awaited.clear();
        if !waiting.is_empty() && self.messages.len() == self.first {
            self.messages.push(json!({"role": "assistant", "content": ""}));
        }
        for call in waiting {
            self.place(self.messages.len() - 1, call);
        }
        self.placed.clear();
    }
}

/// The value, or its JSON text if it is nested too deeply for a file.
fn flattened(value: Value) -> Value {
    if is_flat(&value, JSON_DEPTH_MAX) { value } else { Value::from(value.to_string()) }
}

/// The content of a message in the log; for one offloaded to an artifact, its beginning.
fn content_of(payload: &Value) -> Value {
    let is_content = |content: &&Value| match content {
        Value::String(_) => true,
        Value::Array(parts) => parts.iter().all(|part| part.is_string() || part.is_object()),
        _ => false,
    };
    let content = [&payload["content"], &payload["text"]].into_iter().find(is_content);
    match (content, payload["preview"].as_str()) {
        (Some(content), _) => flattened(content.clone()),
        (None, Some(preview)) => json!(format!("{preview}…")),
        (None, None) if payload["content"].is_null() => json!(""),
        (None, None) => json!(payload["content"].to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(n: u128) -> RunId {
        RunId::trusted(uuid::Uuid::from_u128(n))
    }

    fn message(n: u128, payload: Value) -> Logged {
        Logged { run: run(n), is_tool: false, span: None, payload }
    }

    fn called(n: u128, id: &str, name: &str) -> Logged {
        let payload = json!({"name": name, "args": {"q": id}});
        Logged { run: run(n), is_tool: true, span: Some(id.to_owned()), payload }
    }

    fn gathered(events: impl IntoIterator<Item = Logged>) -> Vec<Value> {
        let mut gathering = MessageBuilder::default();
        events.into_iter().for_each(|logged| gathering.push(logged));
        gathering.finish()
    }

    #[test]
    fn calls_go_to_the_next_answer_of_their_run_or_to_its_last_message() {
        let messages = gathered([
            message(1, json!({"role": "user", "content": "find it"})),
            called(1, "a", "search"),
            called(1, "a", "search"),
            called(1, "b", "read"),
            message(1, json!({"content": [{"type": "text", "text": "found"}]})),
            called(1, "c", "write"),
            called(2, "a", "search"),
            message(3, json!({"text": "the end"})),
        ]);
        let call = |id: &str, name: &str| json!({"id": id, "name": name, "args": {"q": id}});
        assert_eq!(
            messages,
            [
                json!({"role": "user", "content": "find it"}),
                json!({"role": "assistant", "content": [{"type": "text", "text": "found"}],
                       "tool_calls": [call("a", "search"), call("b", "read"), call("c", "write")]}),
                json!({"role": "assistant", "content": "", "tool_calls": [call("a", "search")]}),
                json!({"role": "assistant", "content": "the end"}),
            ]
        );
    }

    #[test]
    fn a_call_that_a_message_names_gets_what_it_was_made_with_and_stands_once() {
        let messages = gathered([
            message(1, json!({"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "search"}]})),
            called(1, "a", "search"),
            message(1, json!({"role": "assistant", "content": "found"})),
        ]);
        assert_eq!(messages[0]["tool_calls"], json!([{"id": "a", "name": "search", "args": {"q": "a"}}]));
        assert!(messages[1].get("tool_calls").is_none());
    }

    #[test]
    fn of_a_message_that_became_an_artifact_the_beginning_is_kept() {
        let pointer = json!({"$artifact": {"artifact_id": "x"}, "preview": "{\"role\":\"user\""});
        assert_eq!(gathered([message(1, pointer)]), [json!({"role": "assistant", "content": "{\"role\":\"user\"…"})]);
    }

    #[test]
    fn what_is_taken_in_is_counted_and_calls_are_too() {
        let mut gathering = MessageBuilder::default();
        let args = vec![0; SAVED_VALUES_MAX / 4];
        for number in 0..4 {
            assert!(!gathering.is_too_much());
            gathering
                .push(Logged { payload: json!({"name": "x", "args": args}), ..called(1, &number.to_string(), "x") });
        }
        assert!(gathering.is_too_much() && gathering.is_empty());
        let mut gathering = MessageBuilder::default();
        gathering.push(message(1, json!({"text": "x".repeat(SAVED_FILE_BYTES_MAX)})));
        assert!(gathering.is_too_much());
    }

    #[test]
    fn what_is_nested_too_deeply_is_kept_as_its_text() {
        let deep = |levels: usize| (0..levels).fold(json!({"a": 1}), |inner, _| json!({"a": inner}));
        let text = deep(100).to_string();
        let native = json!({"id": "1", "function": {"name": "x", "arguments": text}});
        let messages = gathered([
            message(1, json!({"content": [deep(100)], "tool_calls": [native, {"name": "y", "args": deep(100)}]})),
            Logged { payload: json!({"name": "z", "args": deep(30)}), ..called(1, "z", "z") },
        ]);
        assert_eq!(messages[0]["content"], format!("[{text}]"));
        let args: Vec<&Value> =
            messages[0]["tool_calls"].as_array().unwrap().iter().map(|call| &call["args"]).collect();
        assert_eq!(args, [&json!(text), &json!(text), &deep(30)]);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i16>().prop_map(Value::from),
            "user|assistant|tool|[a-c]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            let names = "role|content|text|name|id|args|tool_calls|tool_call_id|preview|[$]artifact|function";
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((names, inner), 0..6).prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_was_logged_becomes_messages_that_can_be_read_again(
            events in proptest::collection::vec((1u128..3, any::<bool>(), proptest::option::of("[a-c]{0,1}"), any_json()), 0..12),
        ) {
            let logged = events.into_iter().map(|(n, is_tool, span, payload)| Logged { run: run(n), is_tool, span, payload });
            for message in gathered(logged) {
                let checked = super::super::message::check_shape(&message);
                prop_assert!(checked.is_ok(), "{message}: {checked:?}");
            }
        }

        #[test]
        fn no_call_is_lost_or_doubled(events in proptest::collection::vec((1u128..4, 0u8..3, 0u8..6), 0..40)) {
            let mut events = events;
            events.sort_by_key(|(run, _, _)| *run);
            let logged = events.iter().map(|(run, kind, id)| match kind {
                0 => called(*run, &id.to_string(), "tool"),
                1 => message(*run, json!({"role": "user", "content": "x"})),
                _ => message(*run, json!({"role": "assistant", "content": "x"})),
            });
            let messages = gathered(logged);
            let made: std::collections::BTreeSet<_> =
                events.iter().filter(|(_, kind, _)| *kind == 0).map(|(run, _, id)| (*run, *id)).collect();
            let kept: usize = messages.iter().filter_map(|message| message["tool_calls"].as_array()).map(Vec::len).sum();
            prop_assert_eq!(kept, made.len());
            let all_fit = messages.iter().all(|message| super::super::message::check_shape(message).is_ok());
            prop_assert!(all_fit);
        }
    }
}
