//! The log's durable events as dialects see them.

use std::sync::Arc;

use crate::{
    bus::Frame,
    domain::{id::SpanId, json::JsonSlice, meaning::What, open::Closes, run::Status},
    faces::position::Live,
};

/// A durable event, with what it means: its ids are [names](super::names), those of its frame are its producer's.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub frame: &'a Arc<Frame>,
    pub what: &'a What,
}

impl<'a> Event<'a> {
    pub fn payload(&self) -> JsonSlice<'a> {
        self.frame.payload()
    }

    /// Whether a reader that is here has all that the run says until somebody answers, or for ever.
    pub fn pauses(&self) -> bool {
        self.frame.terminal.is_some() || *self.what == What::RunPaused(Status::Interrupted)
    }

    /// The texts that it cuts off, if it ends the stream or not; `open` is the name of the text of its span until then.
    pub(super) fn cut(&self, ends: bool, open: Option<SpanId>) -> Cut {
        match Closes::of(&self.frame.event_type, self.frame.span_id.as_ref()) {
            _ if matches!(self.what, What::Text { .. }) => Cut::None,
            _ if ends => Cut::All,
            Closes::Span(_) => open.map_or(Cut::None, Cut::One),
            Closes::Run | Closes::Nothing => Cut::None,
        }
    }

    /// Whether the text of a span is not open any more from this event on.
    pub(super) fn closes(&self, span: &SpanId) -> bool {
        match Closes::of(&self.frame.event_type, self.frame.span_id.as_ref()) {
            Closes::Span(closed) => closed == span,
            Closes::Run => true,
            Closes::Nothing => false,
        }
    }
}

/// Which open texts end with an event, although it is not their own.
#[derive(Debug)]
pub(super) enum Cut {
    None,
    /// The text of this name.
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
