//! The messages of a conversation as `MESSAGES_SNAPSHOT` has them. It replaces what its client has, so it holds all of
//! them, the newest within a bound.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::Names;
use crate::domain::{json::Json, limits::AGUI_HISTORY_BYTES_MAX};

#[derive(Debug)]
pub(super) struct Messages {
    messages: VecDeque<Value>,
    bytes: usize,
    /// Role and text of the messages of the run's input that the log has not said yet.
    brought: Vec<(Value, String)>,
}

/// A message of the snapshot.
pub(super) fn message(id: &str, role: &str, content: &str) -> Value {
    json!({"id": id, "role": role, "content": content})
}

impl Messages {
    pub(super) fn new() -> Self {
        Self { messages: VecDeque::new(), bytes: 0, brought: Vec::new() }
    }

    /// Begins with earlier messages and those of the run's input.
    pub(super) fn begin(&mut self, names: &Names, earlier: &[Value], input: Option<&Json>) {
        for message in earlier {
            self.push(message.clone());
        }
        let messages: Vec<Value> = input.and_then(|input| input.member("messages")).unwrap_or_default();
        for (n, mut message) in messages.into_iter().enumerate() {
            if !message["id"].is_string() && message.is_object() {
                message["id"] = json!(format!("{}/input.{n}", names.run));
            }
            self.brought.push((message["role"].clone(), text_of(&message["content"])));
            self.push(message);
        }
    }

    fn push(&mut self, message: Value) {
        self.bytes += message.to_string().len();
        self.messages.push_back(message);
        while self.bytes > AGUI_HISTORY_BYTES_MAX
            && let Some(oldest) = self.messages.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(oldest.to_string().len());
        }
    }

    fn find(&mut self, id: &str) -> Option<&mut Value> {
        self.messages.iter_mut().rev().find(|message| message["id"] == id)
    }

    /// A message, in place of the one with its id.
    pub(super) fn message(&mut self, id: &str, message: Value) {
        match self.find(id) {
            Some(known) => *known = message,
            None => self.push(message),
        }
    }

    /// A complete text. What the client sent stays as the client sent it.
    pub(super) fn text(&mut self, id: &str, role: &str, content: &str, payload: &Json) {
        if let Some(known) = self.find(id) {
            if known["role"] == role && matches!(role, "assistant" | "reasoning") {
                known["content"] = json!(content);
            }
            return;
        }
        if matches!(role, "user" | "tool") && self.is_brought(role, content) {
            return;
        }
        let mut message = message(id, role, content);
        if role == "tool" {
            message["toolCallId"] = json!(payload.member::<String>("tool_call_id").unwrap_or_default());
        }
        self.push(message);
    }

    /// Whether the run's input brought this message, under its client's id.
    fn is_brought(&mut self, role: &str, content: &str) -> bool {
        let found = self.brought.iter().position(|(of, text)| of == role && text == content);
        found.map(|index| self.brought.remove(index)).is_some()
    }

    pub(super) fn call(&mut self, id: &str, name: &str, args: &str, parent: Option<&str>) {
        let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": args}});
        let parent = parent.unwrap_or(id);
        match self.find(parent) {
            Some(message) if message["toolCalls"].is_array() => {
                if let Some(calls) = message["toolCalls"].as_array_mut() {
                    calls.push(call);
                }
            }
            Some(message) => message["toolCalls"] = json!([call]),
            None => self.push(json!({"id": parent, "role": "assistant", "toolCalls": [call]})),
        }
    }

    /// The result of a call, as a message of its own.
    pub(super) fn result(&mut self, id: Option<&str>, call: &str, content: &str) {
        let id = id.map_or_else(|| result_id(call), ToOwned::to_owned);
        self.message(&id, json!({"id": id, "role": "tool", "toolCallId": call, "content": content}));
    }

    /// The agent's own snapshot.
    pub(super) fn replace(&mut self, messages: Vec<Value>) {
        (self.messages, self.bytes) = (VecDeque::new(), 0);
        for message in messages {
            self.push(message);
        }
    }

    pub(super) fn snapshot(&self) -> Value {
        json!({"type": "MESSAGES_SNAPSHOT", "messages": self.messages})
    }
}

/// The id of the message that a call's result is, where its producer gave it none.
pub(super) fn result_id(call: &str) -> String {
    format!("{call}/result")
}

/// The text of a content: a text, or a list of parts.
fn text_of(content: &Value) -> String {
    let parts = content.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    content.as_str().map_or_else(|| parts.collect(), ToOwned::to_owned)
}
