//! [`Given`]: a run's input, in the form that an AG-UI endpoint reads.

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

/// The protocol version of the requests built here.
const PROTOCOL_VERSION: &str = "1.0";

/// The input of one run.
pub(super) struct Given {
    /// A `RunAgentInput` without its messages.
    request: Map<String, Value>,
    /// Whether the client sends the whole conversation.
    is_whole: bool,
    /// The input's messages in AG-UI's form: the whole conversation, or only what is new.
    messages: Vec<Value>,
    /// The new messages as the log has them, with their spans.
    logged: Vec<(SpanId, Value)>,
    /// The names of the client's tools.
    pub(super) tools: BTreeSet<String>,
}

impl Given {
    /// Reads a run's input: a `RunAgentInput`, or anything else that [`messages_of`] reads. The error becomes the run's
    /// failure.
    pub(super) async fn of(host: &dyn RunHost, input: Value) -> Result<Self, String> {
        let context = host.context();
        let is_whole = input["messages"].is_array() && (input["threadId"].is_string() || input["runId"].is_string());
        if is_whole {
            let Value::Object(request) = input else { return Err("the input is not an object".to_owned()) };
            return Self::whole(context, request);
        }
        let logged = messages_of(&input).into_iter().enumerate().map(|(n, message)| {
            let mut payload = json!({"role": message.role, "content": message.visible()});
            if let Some(call) = &message.tool_call_id {
                payload["tool_call_id"] = json!(fitted(own_id(call)));
            }
            (SpanId::trusted(&format!("input.{n}")), payload)
        });
        let (logged, mut parsed) = (logged.collect(), messages_of(&input));
        for part in parsed.iter_mut().flat_map(|message| &mut message.content) {
            fetch(host, part).await;
        }
        let messages = parsed.iter().enumerate().map(|(n, message)| message_of(context, n, message)).collect();
        let request = Map::from_iter([
            ("threadId".to_owned(), json!(state_thread(context))),
            ("runId".to_owned(), json!(context.run_id)),
            ("protocolVersion".to_owned(), json!(PROTOCOL_VERSION)),
            ("tools".to_owned(), json!([])),
            ("context".to_owned(), json!([])),
            ("forwardedProps".to_owned(), json!({})),
        ]);
        Ok(Self { request, is_whole: false, messages, logged, tools: BTreeSet::new() })
    }

    fn whole(context: &RunContext, mut request: Map<String, Value>) -> Result<Self, String> {
        let messages = match request.remove("messages") {
            Some(Value::Array(messages)) => messages,
            _ => Vec::new(),
        };
        if let Some(wrong) = messages.iter().position(|message| !message.is_object()) {
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
        // Messages up to the agent's last one were logged by earlier runs.
        let new = messages.iter().rposition(|message| message["role"] == "assistant").map_or(0, |last| last + 1);
        let logged = messages[new..].iter().enumerate().filter_map(|(n, message)| logged(n, message)).collect();
        Ok(Self { request, is_whole: true, messages, logged, tools })
    }

    /// The messages that are new in this run, each with its span and its payload of `message.completed`.
    pub(super) fn told(&self) -> Vec<(SpanId, Value)> {
        self.logged.clone()
    }

    /// The conversation when this run begins. `before` is the thread's state after earlier runs.
    pub(super) fn begun(&self, before: Option<Talk>) -> Talk {
        let before = before.unwrap_or_default();
        let mut messages = if self.is_whole { Vec::new() } else { before.messages };
        messages.extend(self.messages.iter().cloned());
        let state = match self.request.get("state") {
            Some(state) => state.clone(),
            None if before.state.is_null() => json!({}),
            None => before.state,
        };
        // The client's messages use these spans in the log, so the endpoint's messages get others.
        let spans = self.logged.iter().map(|(span, _)| span.to_string()).collect();
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

/// A client's message as the log has it: a user's, or the result of a client tool; `None` for any other.
fn logged(n: usize, message: &Value) -> Option<(SpanId, Value)> {
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

/// The endpoint's id of a call: clients of other protocols know it as `RUN/ID`.
fn own_id(call: &str) -> &str {
    match call.split_once('/') {
        Some((run, id)) if run.parse::<RunId>().is_ok() => id,
        _ => call,
    }
}

/// Converts a message to AG-UI's form.
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
