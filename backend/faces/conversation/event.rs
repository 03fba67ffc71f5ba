//! The log's durable events as dialects see them.

use std::sync::Arc;

use crate::{
    bus::Frame,
    domain::{id::SpanId, json::JsonSlice, meaning::What, open::Closes, run::Status},
    faces::position::Live,
};

/// A durable event and its meaning, whose ids are [names](super::names); those of the frame are the producer's.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub frame: &'a Arc<Frame>,
    pub what: &'a What,
}

impl<'a> Event<'a> {
    pub fn payload(&self) -> JsonSlice<'a> {
        self.frame.payload()
    }

    /// Whether the run sends nothing after it, for good or until an interrupt is answered.
    pub fn pauses(&self) -> bool {
        self.frame.terminal.is_some() || *self.what == What::RunPaused(Status::Interrupted)
    }

    /// The texts that it cuts off. `ends`: whether it ends the stream; `open`: name of the open text of its span.
    pub(super) fn cut(&self, ends: bool, open: Option<SpanId>) -> Cut {
        match Closes::of(&self.frame.event_type, self.frame.span_id.as_ref()) {
            _ if matches!(self.what, What::Text { .. }) => Cut::None,
            _ if ends => Cut::All,
            Closes::Span(_) => open.map_or(Cut::None, Cut::One),
            Closes::Run | Closes::Nothing => Cut::None,
        }
    }

    /// Whether it closes the text of a span.
    pub(super) fn closes(&self, span: &SpanId) -> bool {
        match Closes::of(&self.frame.event_type, self.frame.span_id.as_ref()) {
            Closes::Span(closed) => closed == span,
            Closes::Run => true,
            Closes::Nothing => false,
        }
    }
}

/// The open texts that end with an event of another text or of none.
#[derive(Debug)]
pub(super) enum Cut {
    None,
    /// The text with this name.
    One(SpanId),
    All,
}

impl Cut {
    pub(super) fn is_of(&self, live: &mut Live) -> bool {
        match self {
            Self::None => false,
            Self::One(name) => live.is_of(name, live.kind),
            Self::All => true,
        }
    }
}
