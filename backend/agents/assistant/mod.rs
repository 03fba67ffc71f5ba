//! The assistant: a model that calls tools until it is done. One graph for all models and tools.
//!
//! ```text
//! model → (tool calls?) → tools → (calls of the client's tools?) → model → … → end
//! ```
//!
//! The thread's checkpoint holds the conversation, so the thread's next run continues it. Invariants kept here: an
//! answer and a tool's result are saved before anything builds on them, so a crash costs at most the call in progress;
//! and all approvals of a step are obtained before any of its calls is made.
//!
//! Start reading at [`graph`], then [`speak`] (the `model` node) and [`act`] (the `tools` node).

mod act;
mod client;
mod delegate;
mod speak;
mod window;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

#[cfg(feature = "agents")]
pub(in crate::agents) use self::speak::fetch;
pub use self::{client::Waiting, window::Cut};
use super::{
    agent::Agent,
    builtin::artifact::ReadArtifact,
    exclusive::Locks,
    model::{ImageSource, Message, MessageRole, Model, Part, ToolSpec, Usage},
    tools::Toolbox,
};
use crate::{
    domain::id::{EventId, Name, SpanId},
    emitters::{
        emitter::Level,
        host::{HostError, RunHost},
    },
    engine::{Ended, Graph, Limits, Next, RunEnv, State, graph::InvalidGraph},
};

/// An agent as resolved for the execution of one run.
#[derive(Clone)]
pub struct Assistant {
    /// The system prompt, not stored in any conversation; may be empty.
    pub system: String,
    pub model: Arc<dyn Model>,
    pub temperature: Option<f64>,
    /// Longest answer, tokens.
    pub max_tokens: Option<u32>,
    /// The model's context window, including the answer, tokens.
    pub context_tokens: u32,
    pub toolbox: Toolbox,
    /// Notes for the log of its runs, on tools that cannot be used, or only in part.
    pub notes: Vec<String>,
    /// Locks shared with the tools of other runs.
    pub locks: Locks,
    /// Maximum concurrent tool calls, at least 1.
    pub parallel_max: usize,
    /// Longest time of one tool call, unless the tool has its own.
    pub call_time_max: Duration,
    /// Agents it may delegate to; empty if it works alone.
    pub workers: Vec<Name>,
    /// Tools of the run's client, set when the run begins.
    pub client_tools: Vec<ToolSpec>,
    pub limits: Limits,
}

/// The state stored in a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conversation {
    /// Oldest first, without the system prompt.
    pub messages: Vec<Message>,
    /// Of all runs of the thread.
    #[serde(deserialize_with = "usage_of")]
    pub usage: Usage,
    /// The messages that the model is no longer shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// Calls of the last answer that wait for the client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
}

/// In a restored thread, `usage` may be another framework's member of a different kind.
fn usage_of<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Usage, D::Error> {
    Ok(Usage::deserialize(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// The update that a step makes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Said {
    pub messages: Vec<Message>,
    pub usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
}

impl State for Conversation {
    type Update = Said;

    const APPENDED: &'static [&'static str] = &["messages"];

    fn apply(&mut self, Said { messages, usage, cut, waiting }: Said) {
        self.messages.extend(messages);
        self.usage += usage;
        self.cut = cut.or(self.cut.take());
        self.waiting = waiting;
    }
}

impl Conversation {
    /// Adds a new run's input. Calls without a result get one, the client's or a note that there is none, because
    /// providers refuse a conversation with unanswered calls.
    #[must_use]
    pub fn asked(mut self, input: &Value) -> Self {
        // A restored thread with edited messages may hold fewer than were left out.
        self.cut = self.cut.filter(|cut| cut.messages <= self.messages.len());
        let new = messages_of(input);
        let answers = self.answers(&new);
        self.messages.extend(answers);
        self.messages.extend(new.into_iter().filter(|message| message.role != MessageRole::Tool));
        self.waiting.clear();
        self
    }

    /// The index of the first message that the model is shown.
    fn shown_from(&self) -> usize {
        self.cut.as_ref().map_or(0, |cut| cut.messages).min(self.messages.len())
    }

    /// The text of the model's last message.
    pub fn answer(&self) -> String {
        let last = self.messages.iter().rev().find(|message| message.role == MessageRole::Assistant);
        last.map(Message::text).unwrap_or_default()
    }

    fn open_calls(&self) -> Vec<String> {
        let Some(at) = self.messages.iter().rposition(|message| !message.tool_calls.is_empty()) else {
            return Vec::new();
        };
        let answered =
            |id: &String| self.messages[at..].iter().any(|message| message.tool_call_id.as_ref() == Some(id));
        let ids = self.messages[at].tool_calls.iter().map(|call| call.id.clone());
        ids.filter(|id| !answered(id)).collect()
    }

    fn wants_tools(&self) -> bool {
        !self.open_calls().is_empty()
    }
}

/// The messages of a run's input. `input` is a text, or an object with `messages` (each with `role` and `content`),
/// `content`, `text` or `task`; anything else is passed as its JSON. A content is a text or a list of parts. A message
/// with the role `tool` or `function` is a tool's result, whether a call waits for it or not.
pub fn messages_of(input: &Value) -> Vec<Message> {
    let user = |content| Message { content, ..Message::user("") };
    if let Some(messages) = input.get("messages").and_then(Value::as_array).filter(|messages| !messages.is_empty()) {
        let read = |message: &Value| {
            let content = content_of(&message["content"]);
            match message["role"].as_str() {
                Some("tool" | "function") => Message { content, ..Message::tool(call_of(message), "") },
                Some("assistant") => Message { role: MessageRole::Assistant, ..user(content) },
                // Including `system`: system messages come only from the configuration.
                _ => user(content),
            }
        };
        return messages.iter().map(read).collect();
    }
    let named = ["content", "text", "task"].into_iter().find_map(|name| input.get(name)).unwrap_or(input);
    vec![user(content_of(named))]
}

/// The id of the call whose result a message holds; empty if it names none.
fn call_of(message: &Value) -> &str {
    message.get("tool_call_id").or_else(|| message.get("toolCallId")).and_then(Value::as_str).unwrap_or_default()
}

fn content_of(content: &Value) -> Vec<Part> {
    match content {
        Value::String(text) => vec![Part::text(text.as_str())],
        Value::Array(parts) => parts.iter().map(part_of).collect(),
        other => vec![Part::text(other.to_string())],
    }
}

/// One part. An image may also be a data URI, or an artifact as an event describes it.
fn part_of(part: &Value) -> Part {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if part["type"] == "image" {
        let media_type = text(&part["media_type"]).unwrap_or_else(|| "image/png".to_owned());
        if let Some(artifact) = text(&part["artifact"]["artifact_id"]) {
            return Part::Image { media_type, source: ImageSource::ArtifactId(artifact) };
        }
        if let Some(image) = part["url"].as_str().and_then(Part::image_of_data_uri) {
            return image;
        }
    }
    match serde_json::from_value::<Part>(part.clone()) {
        Ok(part @ (Part::Text { .. } | Part::Image { .. })) => part,
        _ => Part::text(text(part).unwrap_or_else(|| part.to_string())),
    }
}

impl Assistant {
    /// Adds the tool that reads offloaded results, if there are other tools.
    fn with_artifacts(&self, host: &Arc<dyn RunHost>) -> Self {
        let mut assistant = self.clone();
        if !self.toolbox.is_empty() {
            assistant.toolbox = self.toolbox.with(Arc::new(ReadArtifact(Arc::clone(host))));
        }
        assistant
    }
}

impl Agent for Assistant {
    fn work(self: Arc<Self>, env: RunEnv, input: Value) -> BoxFuture<'static, Result<Ended<Value>, HostError>> {
        Box::pin(async move {
            for (n, message) in messages_of(&input).iter().enumerate() {
                let (span, content) = (SpanId::trusted(&format!("input.{n}")), message.visible());
                let mut payload = json!({"role": message.role, "content": content});
                if let Some(call) = &message.tool_call_id {
                    payload["tool_call_id"] = json!(call);
                }
                env.emitter.message(&span, &payload, None).await?;
            }
            for note in &self.notes {
                let id = EventId::trusted(&format!("note:{}", hex::encode(&Sha256::digest(note)[..16])));
                env.emitter.log_once(&id, Level::Warn, note).await?;
            }
            let limits = self.limits;
            let mut assistant = self.with_artifacts(&env.host);
            match client::tools(&assistant, &input) {
                Ok(tools) => assistant.client_tools = tools,
                Err(error) => return Ok(Ended::Failed { node: None, code: Some(client::INVALID.to_owned()), error }),
            }
            let assistant = Arc::new(assistant);
            let graph = match graph(&assistant) {
                Ok(graph) => graph,
                Err(flaw) => return Ok(Ended::Failed { node: None, code: None, error: flaw.to_string() }),
            };
            let begin = |before: Option<Conversation>| before.unwrap_or_default().asked(&input);
            let ended = env.drive(&graph, limits, begin).await?;
            Ok(ended.map(|conversation| conversation.output()))
        })
    }

    fn time_max(&self) -> Duration {
        self.limits.node_time_max
    }
}

/// The graph of this assistant.
fn graph(assistant: &Arc<Assistant>) -> Result<Graph<Conversation>, InvalidGraph> {
    let (speaking, acting) = (Arc::clone(assistant), Arc::clone(assistant));
    let more = |conversation: &Conversation| if conversation.wants_tools() { Next::To("tools") } else { Next::End };
    // Calls that are open after the `tools` node wait for the client.
    let back = |conversation: &Conversation| if conversation.wants_tools() { Next::End } else { Next::To("model") };
    Graph::new("assistant", "model")
        .node("model", move |context| speak::speak(Arc::clone(&speaking), context))
        .node("tools", move |context| act::act(Arc::clone(&acting), context))
        .choice("model", &["tools"], more)
        .choice("tools", &["model"], back)
        .build()
}
