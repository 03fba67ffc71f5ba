//! The log's durable events as dialects see them.

use std::sync::Arc;

use crate::{
    bus::Frame,
    domain::{id::SpanId, json::JsonSlice, meaning::What, open::Closes, run::Status},
    faces::position::Live,
};

/// A durable event, with what it means.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub frame: &'a Arc<Frame>,
    pub what: &'a What,
}

impl<'a> Event<'a> {
    pub fn of(frame: &'a Arc<Frame>) -> Self {
        Self { frame, what: frame.meaning() }
    }

    pub fn payload(&self) -> JsonSlice<'a> {
        self.frame.payload()
    }

    /// Whether a reader that is here has all that the run says until somebody answers, or for ever.
    pub fn pauses(&self) -> bool {
        self.frame.terminal.is_some() || *self.what == What::RunPaused(Status::Interrupted)
    }

    /// Whether the text of a span is not open any more from this event on.
    pub(super) fn closes(&self, span: &SpanId) -> bool {
        match Closes::of(&self.frame.event_type, self.frame.span_id.as_ref()) {
            Closes::Span(closed) => closed == span,
            Closes::Run => true,
            Closes::Nothing => false,
        }
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
