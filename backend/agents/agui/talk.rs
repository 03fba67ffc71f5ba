//! [`Talk`]: the conversation with an endpoint, and the progress of the current run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entry::Entry;
use crate::{
    domain::{id::SpanId, json_patch, lenient, limits::AGUI_EVENT_BYTES_MAX},
    engine::State,
};

/// The state stored in a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Talk {
    /// Messages of AG-UI, oldest first.
    pub messages: Vec<Value>,
    /// The state that endpoint and client share.
    pub state: Value,
    /// The progress of the current run, or of the last one.
    pub turn: Turn,
}

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Turn {
    /// Requests made; a request that is repeated because it got no event counts once.
    pub requests: u32,
    /// Whether a request was begun and its stream has not ended.
    pub is_posting: bool,
    /// Consecutive requests without a complete text or result.
    pub failures: u32,
    /// Open texts; `true` for reasoning.
    pub open: BTreeMap<SpanId, bool>,
    pub steps: Vec<(SpanId, String)>,
    /// Spans of messages, reasoning and calls so far.
    pub spans: BTreeSet<String>,
    /// Ids of new messages in snapshots of the conversation.
    pub brought: BTreeSet<String>,
    /// By the endpoint's ids.
    pub calls: BTreeMap<String, Called>,
    /// Questions to people that have no answer yet.
    pub asked: Vec<Asked>,
    /// Spans of all questions so far.
    pub questions: BTreeSet<String>,
    /// People's answers since the last successful request.
    pub resume: Vec<Resume>,
    pub end: Option<End>,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Called {
    pub span: SpanId,
    pub name: String,
    pub args: Value,
    pub is_answered: bool,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// The interrupt's id in the log.
    pub span: SpanId,
    /// The endpoint's id.
    pub id: String,
    /// The endpoint's id of the call that it is about.
    pub call: Option<String>,
    pub payload: Value,
}

/// A person's answer, as a request carries it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Resume {
    pub entry: Value,
    /// The endpoint's id of the call that it lets continue.
    pub call: Option<String>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "as", rename_all = "snake_case")]
pub(super) enum End {
    Finished { output: Value },
    Failed { code: String, message: String },
}

impl State for Talk {
    type Update = Self;

    fn apply(&mut self, update: Self) {
        *self = update;
    }
}

impl Talk {
    /// Applies a recorded entry.
    pub(super) fn record(&mut self, entry: &Entry) {
        let turn = &mut self.turn;
        match entry {
            Entry::Posted => (turn.requests, turn.is_posting) = (turn.requests + 1, true),
            Entry::Opened { span, is_reasoning } => {
                turn.spans.insert(span.to_string());
                turn.open.insert(span.clone(), *is_reasoning);
            }
            Entry::Text { span, is_reasoning, message, .. } => {
                turn.spans.insert(span.to_string());
                turn.open.remove(span);
                turn.failures = 0;
                self.say(*is_reasoning, message);
            }
            Entry::Called { span, id, parent, name, args, .. } => {
                turn.spans.insert(span.to_string());
                let called = Called { span: span.clone(), name: name.clone(), args: read(args), is_answered: false };
                turn.calls.insert(id.clone(), called);
                self.call(id, parent.as_deref(), name, args);
            }
            Entry::Returned { id, message, .. } => {
                turn.failures = 0;
                if let Some(called) = turn.calls.get_mut(id) {
                    called.is_answered = true;
                }
                self.messages.push(message.clone());
            }
            Entry::Messages { messages } => self.replace(messages),
            Entry::State { snapshot } => self.state = snapshot.clone(),
            Entry::StateDelta { delta } => {
                // A delta that does not fit was reported when it arrived.
                if let Ok(state) = json_patch::apply(&self.state, delta, AGUI_EVENT_BYTES_MAX) {
                    self.state = state;
                }
            }
            Entry::Signed { payload } => self.sign(payload),
            Entry::StepBegan { span, name } => turn.steps.push((span.clone(), name.clone())),
            Entry::StepEnded { span, .. } | Entry::StepCut { span, .. } => turn.steps.retain(|(open, _)| open != span),
            Entry::TextCut { span, .. } => _ = turn.open.remove(span),
            Entry::CallCut { id, .. } => self.forget_call(id),
            Entry::Cut { .. } => (turn.is_posting, turn.failures) = (false, turn.failures + 1),
            Entry::Asked { asked } => {
                turn.is_posting = false;
                turn.questions.extend(asked.iter().map(|asked| asked.span.to_string()));
                turn.asked.clone_from(asked);
            }
            Entry::Ended { end } => (turn.is_posting, turn.end) = (false, Some(end.clone())),
            Entry::Noted { .. } | Entry::Warned { .. } => {}
        }
    }

    /// Replaces the conversation. New messages after the user's last one count as this run's.
    fn replace(&mut self, messages: &[Value]) {
        let known: BTreeSet<&str> = self.messages.iter().filter_map(|message| message["id"].as_str()).collect();
        let asked = messages.iter().rposition(|message| message["role"] == "user").map_or(0, |at| at + 1);
        let ids = messages[asked..].iter().filter_map(|message| message["id"].as_str());
        self.turn.brought.extend(ids.filter(|id| !known.contains(id)).map(str::to_owned));
        self.messages = messages.to_vec();
    }

    /// Calls of this run without a result.
    pub(super) fn open_calls(&self) -> impl Iterator<Item = (&String, &Called)> {
        self.turn.calls.iter().filter(|(_, called)| !called.is_answered)
    }

    /// The answers for the next request, except those about calls that already have a result.
    pub(super) fn resume(&self) -> impl Iterator<Item = &Resume> {
        let waits = |call: &String| self.turn.calls.get(call).is_none_or(|called| !called.is_answered);
        self.turn.resume.iter().filter(move |resume| resume.call.as_ref().is_none_or(waits))
    }

    /// Calls whose result was lost with a stream, except those that continue with the next request.
    pub(super) fn lost_calls(&self) -> Vec<(String, Called)> {
        let goes_on = |id: &String| self.turn.resume.iter().any(|resume| resume.call.as_ref() == Some(id));
        let lost = self.open_calls().filter(|(id, _)| !goes_on(id));
        lost.map(|(id, called)| (id.clone(), called.clone())).collect()
    }

    /// The newest message with this id.
    pub(super) fn message(&self, id: &str) -> Option<&Value> {
        self.messages.iter().rev().find(|message| message["id"] == id)
    }

    fn message_mut(&mut self, id: &str) -> Option<&mut Value> {
        self.messages.iter_mut().rev().find(|message| message["id"] == id)
    }

    /// Adds a text; a call may have created its message already.
    fn say(&mut self, is_reasoning: bool, message: &Value) {
        let id = message["id"].as_str().unwrap_or_default();
        let with_calls = self.message_mut(id).filter(|there| !is_reasoning && there.get("content").is_none());
        match with_calls {
            Some(there) => there["content"] = message["content"].clone(),
            None => self.messages.push(message.clone()),
        }
    }

    fn call(&mut self, id: &str, parent: Option<&str>, name: &str, args: &str) {
        let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": args}});
        let parent = parent.unwrap_or(id);
        let there = self.message_mut(parent).filter(|message| message["role"] == "assistant");
        match there.and_then(Value::as_object_mut) {
            Some(message) => match message.get_mut("toolCalls").and_then(Value::as_array_mut) {
                Some(calls) => calls.push(call),
                None => _ = message.insert("toolCalls".to_owned(), json!([call])),
            },
            None => self.messages.push(json!({"id": parent, "role": "assistant", "toolCalls": [call]})),
        }
    }

    /// Removes a call without a result from the conversation, because no model accepts one.
    fn forget_call(&mut self, id: &str) {
        self.turn.calls.remove(id);
        for message in self.messages.iter_mut().filter_map(Value::as_object_mut) {
            let Some(calls) = message.get_mut("toolCalls").and_then(Value::as_array_mut) else { continue };
            calls.retain(|call| call["id"] != id);
            if calls.is_empty() {
                message.remove("toolCalls");
            }
        }
        let says = |message: &Value| message.get("content").is_some() || message.get("toolCalls").is_some();
        self.messages.retain(says);
    }

    /// Attaches a provider's opaque data to the message or call that it belongs to.
    fn sign(&mut self, payload: &Value) {
        let (id, value) = (&payload["entity_id"], &payload["encrypted_value"]);
        let is_it = |entity: &&mut Value| entity["id"] == *id;
        let found = if payload["subtype"] == "tool-call" {
            let calls = self.messages.iter_mut().rev().filter_map(|message| message.get_mut("toolCalls"));
            calls.filter_map(Value::as_array_mut).flatten().find(is_it)
        } else {
            self.messages.iter_mut().rev().find(is_it)
        };
        if let Some(found) = found {
            found["encryptedValue"] = value.clone();
        }
    }
}

/// Arguments as an event carries them: JSON, or the text if it is not JSON.
pub(super) fn read(args: &str) -> Value {
    if args.is_empty() {
        return json!({});
    }
    lenient::value(args.as_bytes()).unwrap_or_else(|_| Value::from(args))
}
