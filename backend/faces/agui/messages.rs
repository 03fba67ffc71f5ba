//! The messages of a conversation for `MESSAGES_SNAPSHOT`. It replaces the client's messages, so it has all of them,
//! within a bound the newest.
//!
//! The cost of a step does not depend on the number of messages: they are found by id, and changes are kept beside a
//! message until the snapshot is written.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::{BuildHasher as _, RandomState},
};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

use super::shapes;
use crate::domain::{
    id::RunId,
    json::{Json, JsonSlice},
    limits::{AGUI_HISTORY_BYTES_MAX, AGUI_HISTORY_MESSAGES_MAX},
};

/// Approximate overhead of a message beside its texts, in bytes.
const MESSAGE_BYTES: usize = 64;

#[derive(Debug)]
struct Message {
    id: String,
    /// The original JSON object.
    json: String,
    /// Later content replaces that of assistant and reasoning messages only.
    role: Role,
    content: Option<String>,
    /// Added calls: JSON, separated by commas.
    calls: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Assistant,
    Reasoning,
    Tool,
    Other,
}

impl Role {
    fn of(role: &str) -> Self {
        match role {
            "assistant" => Self::Assistant,
            "reasoning" => Self::Reasoning,
            "tool" => Self::Tool,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Messages {
    messages: VecDeque<Message>,
    /// How many were removed from the front.
    removed: usize,
    bytes: usize,
    /// By role and id, the index of the newest message, counting removed ones. A producer may use one id in two roles.
    by_id: [HashMap<String, usize>; 4],
    /// By hash of role and text, how many messages of the run's input the log has not repeated yet.
    brought: HashMap<u64, usize>,
    hasher: RandomState,
}

impl Message {
    fn new(id: &str, role: &str, json: String) -> Self {
        Self { id: id.to_owned(), json, role: Role::of(role), content: None, calls: String::new() }
    }

    fn bytes(&self) -> usize {
        let content = self.content.as_ref().map_or(0, String::len);
        2 * self.id.len() + self.json.len() + content + self.calls.len() + MESSAGE_BYTES
    }

    /// Writes the final JSON.
    fn write(self, out: &mut String) {
        if self.content.is_none() {
            if self.calls.is_empty() {
                return out.push_str(&self.json);
            }
            let open = self.json.strip_suffix('}').filter(|open| !open.contains("\"toolCalls\""));
            if let Some(open) = open {
                // The comma is right: the object has at least an id.
                return out.extend([open, ",\"toolCalls\":[", &self.calls, "]}"]);
            }
        }
        let Ok(mut message) = serde_json::from_str::<Value>(&self.json) else { return out.push_str(&self.json) };
        if let Some(content) = self.content {
            message["content"] = json!(content);
        }
        let calls: Vec<Value> = serde_json::from_str(&format!("[{}]", self.calls)).unwrap_or_default();
        if !calls.is_empty() {
            match message["toolCalls"].as_array_mut() {
                Some(known) => known.extend(calls),
                None => message["toolCalls"] = Value::Array(calls),
            }
        }
        out.push_str(&message.to_string());
    }
}

impl Messages {
    /// Adds the messages of a run's input, under its client's ids.
    pub(super) fn bring(&mut self, run: RunId, input: JsonSlice<'_>) {
        for (number, message) in newest(input) {
            let members = message.members();
            let role: String = members.read("role").unwrap_or_default();
            if matches!(&*role, "user" | "tool") {
                let text = members.slice("content").map(text_of).unwrap_or_default();
                *self.brought.entry(self.hasher.hash_one((&*role, &*text))).or_default() += 1;
            }
            let given = serde_json::from_str(message.as_str()).ok();
            let Some(message) = given.and_then(|given| shaped(given, || format!("{run}/input.{number}"))) else {
                continue;
            };
            self.push(Message::new(message["id"].as_str().unwrap_or_default(), &role, message.to_string()));
        }
    }

    fn push(&mut self, message: Message) {
        self.bytes += message.bytes();
        self.by_id[message.role as usize].insert(message.id.clone(), self.removed + self.messages.len());
        self.messages.push_back(message);
        self.fit();
    }

    /// Removes the oldest beyond the bounds.
    fn fit(&mut self) {
        while (self.bytes > AGUI_HISTORY_BYTES_MAX || self.messages.len() > AGUI_HISTORY_MESSAGES_MAX)
            && let Some(oldest) = self.messages.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
            let by_id = &mut self.by_id[oldest.role as usize];
            if by_id.get(&oldest.id) == Some(&self.removed) {
                by_id.remove(&oldest.id);
            }
            self.removed += 1;
        }
    }

    fn find(&self, role: Role, id: &str) -> Option<usize> {
        self.by_id[role as usize].get(id)?.checked_sub(self.removed)
    }

    fn change(&mut self, index: usize, change: impl FnOnce(&mut Message)) {
        let Some(message) = self.messages.get_mut(index) else { return };
        let before = message.bytes();
        change(message);
        self.bytes = self.bytes - before + message.bytes();
        self.fit();
    }

    /// Adds a complete text, or updates the agent's message of that id. `call`: the call that a tool's text is the
    /// result of. What the client sent stays unchanged.
    pub(super) fn text(&mut self, id: &str, role: &str, content: &str, call: Option<&str>) {
        if let Some(index) = self.find(Role::of(role), id) {
            if matches!(Role::of(role), Role::Assistant | Role::Reasoning) {
                self.change(index, |message| message.content = Some(content.to_owned()));
            }
            return;
        }
        if matches!(role, "user" | "tool") && self.is_brought(role, content) {
            return;
        }
        let mut message = json!({"id": id, "role": role, "content": content});
        if let Some(call) = call {
            message["toolCallId"] = json!(call);
        }
        self.push(Message::new(id, role, message.to_string()));
    }

    /// Whether the run's input has this message, under the client's id. Each message of the input matches once.
    fn is_brought(&mut self, role: &str, content: &str) -> bool {
        let left = self.brought.get_mut(&self.hasher.hash_one((role, content))).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    }

    pub(super) fn call(&mut self, id: &str, name: &str, args: &str, parent: Option<&str>) {
        let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": args}}).to_string();
        let parent = parent.unwrap_or(id);
        let add = |message: &mut Message| {
            if !message.calls.is_empty() {
                message.calls.push(',');
            }
            message.calls.push_str(&call);
        };
        // Only the agent's messages have calls.
        let is_other = [Role::Reasoning, Role::Tool, Role::Other].iter().any(|role| self.find(*role, parent).is_some());
        let parent = if is_other && self.find(Role::Assistant, parent).is_none() { id } else { parent };
        if let Some(index) = self.find(Role::Assistant, parent) {
            return self.change(index, add);
        }
        let mut message = Message::new(parent, "assistant", json!({"id": parent, "role": "assistant"}).to_string());
        add(&mut message);
        self.push(message);
    }

    /// Adds or replaces the result of a call, a message of its own.
    pub(super) fn result(&mut self, id: &str, call: &str, content: &str) {
        let json = json!({"id": id, "role": "tool", "toolCallId": call, "content": content}).to_string();
        let message = Message::new(id, "tool", json);
        match self.find(Role::Tool, id) {
            Some(index) => self.change(index, |known| *known = message),
            None => self.push(message),
        }
    }

    /// Replaces all messages by the agent's own snapshot, `{messages}`.
    pub(super) fn replace(&mut self, run: RunId, snapshot: JsonSlice<'_>) {
        let brought = std::mem::take(&mut self.brought);
        self.messages.clear();
        self.by_id = Default::default();
        (self.removed, self.bytes) = (0, 0);
        self.bring(run, snapshot);
        self.brought = brought;
    }

    /// The `MESSAGES_SNAPSHOT` event.
    pub(super) fn snapshot(self) -> String {
        let mut json = String::with_capacity(self.bytes);
        json.push_str("{\"type\":\"MESSAGES_SNAPSHOT\",\"messages\":[");
        for (n, message) in self.messages.into_iter().enumerate() {
            if n > 0 {
                json.push(',');
            }
            message.write(&mut json);
        }
        json.push_str("]}");
        json
    }
}

/// A message that matches the schema, with an id; any other reduced to its text. `None` if that does not match either.
pub(super) fn shaped(message: Value, id: impl FnOnce() -> String) -> Option<Value> {
    let mut message = message;
    if !message["id"].is_string() {
        message.as_object_mut()?.insert("id".to_owned(), json!(id()));
    }
    if shapes::fits("message", &message) {
        return Some(message);
    }
    let text = text_of(Json::of(&message["content"]).slice());
    let mut plain = json!({"id": message["id"], "role": message["role"], "content": text});
    let call = [&message["toolCallId"], &message["tool_call_id"]].into_iter().find(|call| call.is_string());
    if let Some(call) = call.filter(|_| message["role"] == "tool") {
        plain["toolCallId"] = call.clone();
    }
    shapes::fits("message", &plain).then_some(plain)
}

/// The text of a content, which is a string or a list of parts.
fn text_of(content: JsonSlice<'_>) -> String {
    let content: Value = serde_json::from_str(content.as_str()).unwrap_or_default();
    let parts = content.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    content.as_str().map_or_else(|| parts.collect(), ToOwned::to_owned)
}

/// The newest objects in the list of messages of an input or a snapshot, each with its place in the list.
fn newest(of: JsonSlice<'_>) -> VecDeque<(usize, JsonSlice<'_>)> {
    let list = of.members().slice("messages");
    let newest = list.and_then(|list| serde_json::from_str::<Newest<'_>>(list.as_str()).ok());
    newest.map_or_else(VecDeque::new, |newest| newest.0)
}

struct Newest<'a>(VecDeque<(usize, JsonSlice<'a>)>);

impl<'de> Deserialize<'de> for Newest<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Newest<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let (mut newest, mut bytes, mut number) = (VecDeque::new(), 0, 0);
                while let Some(message) = list.next_element::<&'de RawValue>()? {
                    let message = JsonSlice::trusted(message.get());
                    if message.as_str().starts_with('{') {
                        bytes += message.as_str().len();
                        newest.push_back((number, message));
                    }
                    number += 1;
                    while bytes > AGUI_HISTORY_BYTES_MAX || newest.len() > AGUI_HISTORY_MESSAGES_MAX {
                        let oldest: Option<(usize, JsonSlice<'_>)> = newest.pop_front();
                        bytes -= oldest.map_or(0, |(_, message)| message.as_str().len());
                    }
                }
                Ok(Newest(newest))
            }
        }

        deserializer.deserialize_seq(List)
    }
}
