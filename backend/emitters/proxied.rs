//! Drafts of a run whose agent is elsewhere: its messages, calls and steps under the ids it gave them.

use serde_json::Value;

use super::emitter::Draft;
use crate::domain::{
    event::{EventKind, EventType},
    id::{EventId, SpanId},
};

/// What a foreign agent can say. Nothing else can be drafted for it: no status of the run, no worker, no artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Message,
    Reasoning,
    ToolStarted,
    ToolCompleted,
    ToolFailed,
    StepStarted,
    StepCompleted,
    StepFailed,
    Warning,
    /// An event of AG-UI that this program has none for: a word of the family `agui`.
    Agui(&'static str),
}

/// A durable event. `id` must be the same when it is drafted again after a crash.
pub fn draft(said: Said, id: &EventId, span: Option<&SpanId>, parent: Option<&SpanId>, payload: &Value) -> Draft {
    let draft = match said {
        Said::Message => Draft::new(EventKind::MessageCompleted, payload),
        Said::Reasoning => Draft::new(EventKind::ReasoningCompleted, payload),
        Said::ToolStarted => Draft::new(EventKind::ToolStarted, payload),
        Said::ToolCompleted => Draft::new(EventKind::ToolCompleted, payload),
        Said::ToolFailed => Draft::new(EventKind::ToolFailed, payload),
        Said::StepStarted => Draft::new(EventKind::StepStarted, payload),
        Said::StepCompleted => Draft::new(EventKind::StepCompleted, payload),
        Said::StepFailed => Draft::new(EventKind::StepFailed, payload),
        Said::Warning => Draft::new(EventKind::LogWarn, payload),
        Said::Agui(word) => Draft::new(EventType::trusted(&format!("agui.{word}")), payload),
    };
    let draft = draft.known_as(id).under(parent);
    match span {
        Some(span) => draft.span(span),
        None => draft,
    }
}

/// A piece of a text that is still being written: of a message, or of reasoning.
pub fn piece(is_reasoning: bool, role: &str, span: &SpanId, text: &str) -> Draft {
    let kind = if is_reasoning { EventKind::ReasoningDelta } else { EventKind::MessageDelta };
    let mut payload = serde_json::json!({"text": text});
    if !is_reasoning && role != "assistant" {
        payload["role"] = role.into();
    }
    Draft::new(kind, &payload).span(span)
}
