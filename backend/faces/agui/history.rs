//! What a reader that joins is told of what was before: the state, and every complete message.
//!
//! `MESSAGES_SNAPSHOT` replaces what its client has, so it holds the whole conversation: what came with the run's input,
//! or else the thread's earlier messages, and then those of the run.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use crate::{
    domain::{id::RunId, json::Json, limits::AGUI_HISTORY_BYTES_MAX},
    faces::conversation::content_of,
    store::threads::Message,
};

/// The messages of a thread before the run, oldest first; they count unless the run's input brings its own.
#[derive(Debug, Default)]
pub struct Earlier(pub Vec<Value>);

impl Earlier {
    /// Adds a message of an earlier run.
    pub fn push(&mut self, message: &Message) {
        let span = message.message_id.clone().unwrap_or_else(|| format!("event-{}", message.seq));
        let id = format!("{}/{span}", message.run_id);
        let role: String = message.payload.member("role").unwrap_or_else(|| "assistant".to_owned());
        let content = content_of(&message.payload).unwrap_or_default();
        let mut said = self::message(&id, &role, &content);
        if let Some(call) = message.payload.member::<String>("tool_call_id") {
            said["toolCallId"] = json!(call);
        }
        if ["user", "assistant", "system", "developer"].contains(&role.as_str()) || !said["toolCallId"].is_null() {
            self.0.push(said);
        }
    }
}

#[derive(Debug)]
pub(super) struct History {
    earlier: Vec<Value>,
    messages: VecDeque<Value>,
    bytes: usize,
    /// Role and text of the messages of the run's input that the log has not said yet.
    brought: Vec<(Value, String)>,
    /// The last snapshot of the state and the deltas since; other events that tell what is, by the entity they are of.
    state: Vec<Value>,
    activities: Vec<Value>,
    has_own_ids: bool,
}

/// A message of the snapshot.
pub(super) fn message(id: &str, role: &str, content: &str) -> Value {
    json!({"id": id, "role": role, "content": content})
}

/// An event of the family `agui` in AG-UI's own spelling: `tool_call_id` is `toolCallId`.
pub(super) fn renamed(word: &str, payload: &Json) -> Value {
    let mut event = Map::from_iter([("type".to_owned(), json!(word.to_ascii_uppercase()))]);
    let members: Map<String, Value> = serde_json::from_str(payload.as_str()).unwrap_or_default();
    for (name, value) in members {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        let name = words.fold(first, |name, word| {
            let mut letters = word.chars();
            let initial = letters.next().map(|letter| letter.to_ascii_uppercase());
            name + &initial.into_iter().chain(letters).collect::<String>()
        });
        event.insert(name, value);
    }
    Value::Object(event)
}

impl History {
    pub(super) fn new(Earlier(earlier): Earlier) -> Self {
        Self {
            earlier,
            messages: VecDeque::new(),
            bytes: 0,
            brought: Vec::new(),
            state: Vec::new(),
            activities: Vec::new(),
            has_own_ids: false,
        }
    }

    /// Whether the agent's ids are unique in its thread; otherwise the run's id stands before them.
    pub(super) fn has_own_ids(&self) -> bool {
        self.has_own_ids
    }

    /// Reads the run's creation. If its input is a whole `RunAgentInput`, its agent's ids are those of the client's
    /// conversation. An input with `messages` alone brings what is new.
    pub(super) fn begin(&mut self, run: RunId, created: &Json) {
        let input = created.raw_member("input");
        let member = |name: &str| input.as_ref().and_then(|input| input.member::<Value>(name));
        let is_whole = member("messages").is_some() && member("runId").is_some();
        if !is_whole {
            for message in std::mem::take(&mut self.earlier) {
                self.push(message);
            }
        }
        let messages = member("messages").and_then(|messages| messages.as_array().cloned()).unwrap_or_default();
        for (n, mut message) in messages.into_iter().enumerate() {
            if !message["id"].is_string() && message.is_object() {
                message["id"] = json!(format!("{run}/input.{n}"));
            }
            self.brought.push((message["role"].clone(), text_of(&message["content"])));
            self.push(message);
        }
        self.has_own_ids = is_whole;
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

    pub(super) fn has(&self, id: &str) -> bool {
        self.messages.iter().any(|message| message["id"] == id)
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

    pub(super) fn result(&mut self, id: &str, call: &str, content: &str) {
        self.message(id, json!({"id": id, "role": "tool", "toolCallId": call, "content": content}));
    }

    /// The agent's own snapshot.
    pub(super) fn replace(&mut self, messages: Vec<Value>) {
        (self.messages, self.bytes) = (VecDeque::new(), 0);
        for message in messages {
            self.push(message);
        }
    }

    /// Keeps an event that tells what is.
    pub(super) fn note(&mut self, word: &str, said: &Value) {
        match word {
            "state_snapshot" => self.state = vec![said.clone()],
            "state_delta" => self.state.push(said.clone()),
            "activity_snapshot" => {
                self.activities.retain(|other| other["messageId"] != said["messageId"]);
                self.activities.push(said.clone());
            }
            "activity_delta" => self.activities.push(said.clone()),
            _ => {}
        }
    }

    pub(super) fn messages_snapshot(&self) -> Value {
        json!({"type": "MESSAGES_SNAPSHOT", "messages": self.messages})
    }

    /// The events that bring a reader with nothing to here.
    pub(super) fn prelude(&self) -> Vec<Value> {
        let messages = std::iter::once(self.messages_snapshot());
        self.state.iter().cloned().chain(messages).chain(self.activities.iter().cloned()).collect()
    }
}

/// The text of a content: a text, or a list of parts.
pub(super) fn text_of(content: &Value) -> String {
    let parts = content.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    content.as_str().map_or_else(|| parts.collect(), ToOwned::to_owned)
}
