//! How much text of unfinished messages a run may keep open.
//!
//! Deltas are never rows; memory holds the text so far, from a span's first delta to the durable event with all of it.
//! The rules use lengths only, so the holder of the texts and the planner of uncommitted batches share them.

use super::{
    event::{Edge, EventType},
    id::SpanId,
    limits::{OPEN_RUN_BYTES_MAX, OPEN_SPANS_MAX, OPEN_TEXT_BYTES_MAX},
    run::Status,
};

/// The text of a run's open spans is over a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the streamed text of one span may reach {OPEN_TEXT_BYTES_MAX} bytes, and that of one run {OPEN_RUN_BYTES_MAX} bytes \
     in {OPEN_SPANS_MAX} spans at a time"
)]
pub struct Overflow;

/// How much text a run has open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    pub spans: usize,
    pub bytes: usize,
}

impl Lengths {
    /// Adds a delta to a span that has `so_far` bytes, `None` if it is not open. A refusal changes nothing.
    pub fn add(&mut self, so_far: Option<usize>, delta: usize) -> Result<(), Overflow> {
        let spans = self.spans + usize::from(so_far.is_none());
        let bytes = self.bytes + delta;
        let fits = so_far.unwrap_or(0) + delta <= OPEN_TEXT_BYTES_MAX;
        if !fits || bytes > OPEN_RUN_BYTES_MAX || spans > OPEN_SPANS_MAX {
            return Err(Overflow);
        }
        (self.spans, self.bytes) = (spans, bytes);
        Ok(())
    }

    /// Removes a span of this many bytes.
    pub fn close(&mut self, bytes: usize) {
        self.spans -= 1;
        self.bytes -= bytes;
    }
}

/// The open texts that an event closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closes<'a> {
    Nothing,
    Span(&'a SpanId),
    Run,
}

impl<'a> Closes<'a> {
    /// A durable event closes the span it names, and a terminal one closes all.
    pub fn of(event_type: &EventType, span_id: Option<&'a SpanId>) -> Self {
        if Status::after(event_type).is_some_and(Status::is_terminal) {
            return Self::Run;
        }
        match (event_type.edge(), span_id) {
            (Some(Edge::Completed | Edge::Failed), Some(span_id)) => Self::Span(span_id),
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_holds_by_itself_and_a_refusal_changes_nothing() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.add(Some(OPEN_TEXT_BYTES_MAX), 1), Err(Overflow));
        lengths.add(None, OPEN_TEXT_BYTES_MAX).unwrap();
        let full = Lengths { spans: OPEN_SPANS_MAX, bytes: 1 };
        assert_eq!(full.clone().add(None, 0), Err(Overflow));
        assert_eq!(full.clone().add(Some(1), 1), Ok(()));
        let mut long = Lengths { spans: 1, bytes: OPEN_RUN_BYTES_MAX };
        assert_eq!(long.add(Some(0), 1), Err(Overflow));
        assert_eq!(long, Lengths { spans: 1, bytes: OPEN_RUN_BYTES_MAX });
        lengths.close(OPEN_TEXT_BYTES_MAX);
        assert_eq!(lengths, Lengths::default());
    }

    #[test]
    fn an_end_closes_its_span_and_the_runs_end_closes_all() {
        let span: SpanId = "m".parse().unwrap();
        let closes = |word: &str| Closes::of(&word.parse().unwrap(), Some(&span));
        assert_eq!(closes("message.completed"), Closes::Span(&span));
        assert_eq!(closes("tool.failed"), Closes::Span(&span));
        assert_eq!(closes("run.cancelled"), Closes::Run);
        assert_eq!(closes("message.delta"), Closes::Nothing);
        assert_eq!(Closes::of(&"tool.completed".parse().unwrap(), None), Closes::Nothing);
    }
}
