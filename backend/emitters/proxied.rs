//! Drafts of a run whose agent is elsewhere: its messages, calls and steps under the ids it gave them.

use serde_json::Value;

use super::emitter::Draft;
use crate::domain::id::{EventId, SpanId};

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
        Said::Message => Draft::new("message.completed", payload),
        Said::Reasoning => Draft::new("reasoning.completed", payload),
        Said::ToolStarted => Draft::new("tool.started", payload),
        Said::ToolCompleted => Draft::new("tool.completed", payload),
        Said::ToolFailed => Draft::new("tool.failed", payload),
        Said::StepStarted => Draft::new("step.started", payload),
        Said::StepCompleted => Draft::new("step.completed", payload),
        Said::StepFailed => Draft::new("step.failed", payload),
        Said::Warning => Draft::new("log.warn", payload),
        Said::Agui(word) => Draft::new(&format!("agui.{word}"), payload),
    };
    let draft = draft.known_as(id).under(parent);
    match span {
        Some(span) => draft.span(span),
        None => draft,
    }
}

/// A piece of a text that is still being written: of a message, or of reasoning.
pub fn piece(is_reasoning: bool, role: &str, span: &SpanId, text: &str) -> Draft {
    let event_type = if is_reasoning { "reasoning.delta" } else { "message.delta" };
    let mut payload = serde_json::json!({"text": text});
    if !is_reasoning && role != "assistant" {
        payload["role"] = role.into();
    }
    Draft::new(event_type, &payload).span(span)
}
