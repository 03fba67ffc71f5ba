//! Emits that were refused or failed.

use super::{Code, Problem};
use crate::{domain::run::Refusal, timeline::emit::EmitError};

impl From<EmitError> for Problem {
    fn from(error: EmitError) -> Self {
        let detail = error.to_string();
        match error {
            EmitError::NotFound => Self::not_found(),
            EmitError::Refused(Refusal::Ended { .. }) => {
                Self::new(Code::RunEnded, detail).hint("nothing can follow a run's terminal event; create a new run")
            }
            EmitError::Refused(Refusal::Transition { .. }) => Self::new(Code::InvalidTransition, detail)
                .hint("queued → running → (waiting | interrupted → running)* → completed | failed | cancelled"),
            EmitError::RunExists => {
                Self::new(Code::RunExists, detail).field("run_id").hint("choose another run_id or omit it")
            }
            EmitError::ExternalIdTaken(_) => Self::new(Code::ExternalIdTaken, detail).field("external_id").hint(
                "to get it, send PUT /api/runs/by-external-id/{external_id}; else choose another id or delete that run",
            ),
            EmitError::TooManyAliases => Self::new(Code::Busy, detail).field("runId"),
            EmitError::TooDeep => Self::new(Code::TooLarge, detail).field("parent_run_id"),
            EmitError::Misplaced(_) => Self::new(Code::InvalidRequest, detail).field("parent_run_id"),
            EmitError::OpenText(_) => {
                Self::new(Code::TooLarge, detail).hint("close the span with its durable event, then start another")
            }
            EmitError::Busy => Self::new(Code::Busy, detail).hint("nothing was stored; try again after Retry-After"),
            EmitError::Unavailable(_) => {
                Self::new(Code::Unavailable, detail).hint("nothing was stored; try again after Retry-After")
            }
            EmitError::OutcomeUnknown => Self::new(Code::OutcomeUnknown, detail)
                .hint("send the same events with the same event_id again: stored events are not stored twice"),
            EmitError::Broken => Self::new(Code::Internal, detail),
            EmitError::Elsewhere => {
                Self::new(Code::Busy, detail).hint("nothing was stored; try again after Retry-After")
            }
            EmitError::InterruptExists(_) => Self::new(Code::InterruptExists, detail)
                .field("span_id")
                .hint("give each question a span_id of its own; send the same event_id to repeat a request"),
            EmitError::KeyTaken => Self::new(Code::InvalidEvent, detail).field("event_id"),
            EmitError::StorageFull => {
                Self::new(Code::StorageFull, detail).hint("nothing was stored; free space, or send smaller payloads")
            }
            EmitError::StorageUnavailable => {
                Self::new(Code::StorageUnavailable, detail).hint("nothing was stored; try again after Retry-After")
            }
        }
    }
}
