//! The log's events as a conversation has them.

use std::sync::Arc;

use serde::Deserialize;

use super::texts::{Text, kind_of};
use crate::{
    bus::Frame,
    domain::{
        id::{Seq, SpanId},
        json::Json,
        open::Closes,
        run::Status,
    },
    faces::position::Live,
};

/// A durable event, with what it means. Members that its producer left out are empty.
#[derive(Debug)]
pub struct Event {
    pub frame: Arc<Frame>,
    pub payload: Json,
    pub what: What,
}

/// What an event means in a conversation. JSON is as its producer wrote it.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    RunCreated,
    RunStarted,
    RunResumed,
    /// `waiting` or `interrupted`.
    RunPaused(Status),
    RunCompleted {
        output: Option<Json>,
    },
    RunFailed {
        error: Option<Json>,
    },
    RunCancelled {
        reason: Option<String>,
    },
    /// `is_client`: the client makes the call, and the run does not have its result.
    ToolStarted {
        tool_call_id: String,
        name: String,
        args: Option<Json>,
        is_client: bool,
    },
    ToolCompleted {
        tool_call_id: String,
        name: String,
        result: Option<Json>,
    },
    ToolFailed {
        tool_call_id: String,
        name: String,
        error: Option<Json>,
    },
    StepStarted {
        name: String,
    },
    /// With the error of one that failed.
    StepEnded {
        name: String,
        error: Option<Json>,
    },
    /// The interrupt's id is its span.
    InterruptRequested {
        interrupt_id: String,
    },
    InterruptResolved {
        interrupt_id: String,
    },
    Checkpointed,
    /// A text, see [`Event::text`].
    Text,
    /// Any other: `custom.*`, `log.*`, `artifact.created`, `worker.*`, `state.compacted`, and families of producers.
    Other,
}

impl Event {
    /// Reads a durable event.
    pub fn read(frame: &Arc<Frame>) -> Self {
        let payload = Json::trusted(String::from_utf8_lossy(&frame.payload()).into_owned());
        let what = what(frame, &payload);
        Self { frame: Arc::clone(frame), payload, what }
    }

    /// Whether a reader that is here has all that the run says until somebody answers, or for ever.
    pub fn pauses(&self) -> bool {
        self.frame.terminal.is_some() || self.what == What::RunPaused(Status::Interrupted)
    }

    /// The text of a message or of reasoning. The text is `None` if the payload does not hold it, because it became an
    /// artifact or has no text. One without a span is identified by its seq.
    pub fn text(&self, seq: Seq) -> Option<(Text, Option<String>)> {
        let kind = kind_of(&self.frame.event_type)?;
        let span = self.frame.span_id.clone().unwrap_or_else(|| SpanId::trusted(&format!("event-{seq}")));
        let role = self.payload.member("role").unwrap_or_else(|| "assistant".to_owned());
        let text = Text { parent: self.frame.parent_span_id.clone(), role, ..Text::new(span, kind) };
        Some((text, self.content()))
    }

    /// The text of a message or of reasoning, as [`Event::text`] has it.
    pub fn content(&self) -> Option<String> {
        content_of(&self.payload)
    }

    /// Whether an open text ends with this event, although this is not its own durable event.
    pub(super) fn cuts(&self, live: &Live) -> bool {
        match Closes::of(&self.frame.event_type, self.frame.span_id.as_ref()) {
            _ if self.pauses() => true,
            Closes::Span(span) => live.span() == Some(span),
            Closes::Run | Closes::Nothing => false,
        }
    }
}

/// The text of a durable payload: of `content`, a text or a list of parts, else `text`.
pub fn content_of(payload: &Json) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Parts(Vec<PartOf>),
    }
    #[derive(Deserialize)]
    struct PartOf {
        #[serde(rename = "type")]
        kind: Option<String>,
        text: Option<String>,
    }
    match payload.member("content") {
        Some(Content::Text(text)) => Some(text),
        Some(Content::Parts(parts)) => {
            let texts = parts.into_iter().filter(|part| part.kind.as_deref() == Some("text"));
            Some(texts.filter_map(|part| part.text).collect())
        }
        None => payload.member("text"),
    }
}

/// A token: the number of characters before it, and its text.
pub(super) fn token(payload: &[u8]) -> Option<(usize, String)> {
    #[derive(Deserialize)]
    struct Token {
        text: String,
        offset: usize,
    }
    serde_json::from_slice(payload).ok().map(|token: Token| (token.offset, token.text))
}

fn what(frame: &Frame, payload: &Json) -> What {
    let text = |name: &str| payload.member::<String>(name);
    let span = || frame.span_id.as_ref().map_or_else(String::new, |span| span.as_str().to_owned());
    let name = || text("name").unwrap_or_else(span);
    let call = || text("tool_call_id").unwrap_or_else(span);
    let error = || payload.raw_member("error");
    match frame.event_type.as_str() {
        "run.created" => What::RunCreated,
        "run.started" => What::RunStarted,
        "run.resumed" => What::RunResumed,
        "run.waiting" => What::RunPaused(Status::Waiting),
        "run.interrupted" => What::RunPaused(Status::Interrupted),
        "run.completed" => What::RunCompleted { output: payload.raw_member("output") },
        "run.failed" => What::RunFailed { error: error().or_else(|| Some(payload.clone())) },
        "run.cancelled" => What::RunCancelled { reason: text("reason") },
        "tool.started" => What::ToolStarted {
            tool_call_id: call(),
            name: name(),
            args: payload.raw_member("args"),
            is_client: payload.member("client").unwrap_or(false),
        },
        "tool.completed" => {
            What::ToolCompleted { tool_call_id: call(), name: name(), result: payload.raw_member("result") }
        }
        "tool.failed" => What::ToolFailed { tool_call_id: call(), name: name(), error: error() },
        "step.started" => What::StepStarted { name: name() },
        "step.completed" => What::StepEnded { name: name(), error: None },
        "step.failed" => What::StepEnded { name: name(), error: error().or_else(|| Some(Json::empty())) },
        "interrupt.requested" => What::InterruptRequested { interrupt_id: span() },
        "interrupt.resolved" => What::InterruptResolved { interrupt_id: span() },
        "state.checkpointed" => What::Checkpointed,
        "message.completed" | "reasoning.completed" => What::Text,
        _ => What::Other,
    }
}
