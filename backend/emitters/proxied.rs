//! Drafts for a run whose agent runs elsewhere: its messages, calls and steps under the ids it gave them.

use serde_json::Value;

use super::emitter::Draft;
use crate::domain::{
    event::{EventKind, EventType},
    id::{EventId, SpanId},
};

/// The events a foreign agent can emit. Nothing else can be drafted for it: no run status, no worker, no artifact.
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
    /// An AG-UI event without a counterpart here: its word in the family `agui`.
    Agui(&'static str),
}

/// A durable event. `id` must be the same when it is drafted again after a crash.
pub fn draft(event: Said, id: &EventId, span: Option<&SpanId>, parent: Option<&SpanId>, payload: &Value) -> Draft {
    let draft = match event {
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
