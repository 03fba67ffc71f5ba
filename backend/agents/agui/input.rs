//! [`Given`]: what a run is to do, as an endpoint of AG-UI reads it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    spans::fitted,
    talk::{Talk, Turn},
};
use crate::{
    agents::{
        assistant::{fetch, messages_of},
        model::{ImageSource, Message, MessageRole, Part},
    },
    domain::{
        context::RunContext,
        id::{RunId, SpanId},
        limits::CLIENT_TOOLS_MAX,
    },
    emitters::host::RunHost,
    threads::state_thread,
};

/// The version of the protocol that requests made here are written for.
const PROTOCOL_VERSION: &str = "1.0";

/// The input of one run.
pub(super) struct Given {
    /// A `RunAgentInput`; without messages if they are those of the thread and [`Given::said`].
    request: Map<String, Value>,
    /// Its client sends the whole conversation.
    is_whole: bool,
    /// What is new, as messages of AG-UI.
    said: Vec<Value>,
    /// The same as the log has it.
    told: Vec<(SpanId, Value)>,
    /// The names of the client's tools.
    pub(super) tools: BTreeSet<String>,
}

impl Given {
    /// Reads a run's input: a `RunAgentInput` as it is, anything else as a message of a user. The error is for the person
    /// who reads the failed run.
    pub(super) async fn of(host: &dyn RunHost, input: Value) -> Result<Self, String> {
        let context = host.context();
        let is_whole = input["messages"].is_array() && (input["threadId"].is_string() || input["runId"].is_string());
        if is_whole {
            let Value::Object(request) = input else { return Err("the input is not an object".to_owned()) };
            return Self::whole(context, request);
        }
        let told = messages_of(&input).into_iter().enumerate().map(|(n, message)| {
            let mut payload = json!({"role": message.role, "content": message.visible()});
            if let Some(call) = &message.tool_call_id {
                payload["tool_call_id"] = json!(fitted(own_id(call)));
            }
            (SpanId::trusted(&format!("input.{n}")), payload)
        });
        let (told, mut messages) = (told.collect(), messages_of(&input));
        for part in messages.iter_mut().flat_map(|message| &mut message.content) {
            fetch(host, part).await;
        }
        let said = messages.iter().enumerate().map(|(n, message)| message_of(context, n, message)).collect();
        let request = Map::from_iter([
            ("threadId".to_owned(), json!(state_thread(context))),
            ("runId".to_owned(), json!(context.run_id)),
            ("protocolVersion".to_owned(), json!(PROTOCOL_VERSION)),
            ("tools".to_owned(), json!([])),
            ("context".to_owned(), json!([])),
            ("forwardedProps".to_owned(), json!({})),
        ]);
        Ok(Self { request, is_whole: false, said, told, tools: BTreeSet::new() })
    }

    fn whole(context: &RunContext, mut request: Map<String, Value>) -> Result<Self, String> {
        let said = match request.remove("messages") {
            Some(Value::Array(messages)) => messages,
            _ => Vec::new(),
        };
        if let Some(wrong) = said.iter().position(|message| !message.is_object()) {
            return Err(format!("messages[{wrong}] of the input is not an object"));
        }
        if let Some(thread) = &context.thread_id {
            request.insert("threadId".to_owned(), json!(thread));
        }
        request.entry("threadId").or_insert_with(|| json!(state_thread(context)));
        request.entry("runId").or_insert_with(|| json!(context.run_id));
        let tools = request.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if tools.len() > CLIENT_TOOLS_MAX {
            return Err(format!("the input has more than {CLIENT_TOOLS_MAX} tools"));
        }
        let tools = tools.iter().filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect();
        // What came before the agent's last message was told by earlier runs.
        let new = said.iter().rposition(|message| message["role"] == "assistant").map_or(0, |last| last + 1);
        let told = said[new..].iter().enumerate().filter_map(|(n, message)| told(n, message)).collect();
        Ok(Self { request, is_whole: true, said, told, tools })
    }

    /// The messages that are new with this run, each with its span and as `message.completed` carries it.
    pub(super) fn told(&self) -> Vec<(SpanId, Value)> {
        self.told.clone()
    }

    /// The conversation as this run begins it. `before` is what earlier runs of the thread left.
    pub(super) fn begun(&self, before: Option<Talk>) -> Talk {
        let before = before.unwrap_or_default();
        let mut messages = if self.is_whole { Vec::new() } else { before.messages };
        messages.extend(self.said.iter().cloned());
        let state = match self.request.get("state") {
            Some(state) => state.clone(),
            None if before.state.is_null() => json!({}),
            None => before.state,
        };
        // What the client said has its span in the log, so the endpoint's messages get others.
        let spans = self.told.iter().map(|(span, _)| span.to_string()).collect();
        Talk { messages, state, turn: Turn { spans, ..Turn::default() } }
    }

    /// The next request of the run.
    pub(super) fn request(&self, talk: &Talk) -> Value {
        let mut request = self.request.clone();
        request.insert("messages".to_owned(), Value::Array(talk.messages.clone()));
        request.insert("state".to_owned(), talk.state.clone());
        if talk.turn.requests > 1 {
            let first = self.request["runId"].as_str().unwrap_or_default();
            request.insert("runId".to_owned(), json!(format!("{first}~{}", talk.turn.requests)));
        }
        let resume: Vec<&Value> = talk.resume().map(|resume| &resume.entry).collect();
        if !resume.is_empty() {
            request.insert("resume".to_owned(), json!(resume));
        }
        Value::Object(request)
    }
}

/// A message of the client as the log has it: a user's, or the result of a tool of the client.
fn told(n: usize, message: &Value) -> Option<(SpanId, Value)> {
    let content = match &message["content"] {
        Value::String(text) => json!([{"type": "text", "text": text}]),
        Value::Array(parts) => json!(parts),
        _ => return None,
    };
    let span = message["id"].as_str().map_or_else(|| SpanId::trusted(&format!("input.{n}")), fitted);
    match message["role"].as_str()? {
        "user" => Some((span, json!({"role": "user", "content": content}))),
        "tool" => {
            let call = message["toolCallId"].as_str()?;
            Some((span, json!({"role": "tool", "content": content, "tool_call_id": fitted(call)})))
        }
        _ => None,
    }
}

/// The endpoint's own id of a call, of the one that clients of other protocols know.
fn own_id(call: &str) -> &str {
    match call.split_once('/') {
        Some((run, id)) if run.parse::<RunId>().is_ok() => id,
        _ => call,
    }
}

/// A message of our own form as AG-UI has it.
fn message_of(context: &RunContext, n: usize, message: &Message) -> Value {
    let id = format!("{}.input.{n}", context.run_id);
    if let Some(call) = &message.tool_call_id {
        return json!({"id": id, "role": "tool", "toolCallId": own_id(call), "content": message.text()});
    }
    let role = if message.role == MessageRole::Assistant { "assistant" } else { "user" };
    let plain = message.content.iter().all(|part| matches!(part, Part::Text { .. }));
    if plain || role == "assistant" {
        return json!({"id": id, "role": role, "content": message.text()});
    }
    let parts = message.content.iter().filter_map(|part| match part {
        Part::Text { text } => Some(json!({"type": "text", "text": text})),
        Part::Image { media_type, source } => {
            let source = match source {
                ImageSource::Data(data) => json!({"type": "data", "value": data, "mimeType": media_type}),
                ImageSource::Url(url) => json!({"type": "url", "value": url, "mimeType": media_type}),
                ImageSource::ArtifactId(_) => return None,
            };
            Some(json!({"type": "image", "source": source}))
        }
        Part::Reasoning { .. } => None,
    });
    json!({"id": id, "role": role, "content": parts.collect::<Vec<_>>()})
}
