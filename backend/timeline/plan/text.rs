//! A run's open texts as they will be once everything planned so far is published.

use std::collections::HashMap;

use crate::domain::{
    event::NewEvent,
    id::{RunId, SpanId},
    open::{Closes, Lengths, Overflow},
};

/// The lengths of a run's open texts, and the bytes of a span's; `None` if the span is not open.
pub(crate) type OpenNow<'a> = dyn Fn(RunId, &SpanId) -> (Lengths, Option<usize>) + Sync + 'a;

/// The lengths of one run's open texts.
#[derive(Default)]
pub(super) struct PlannedText {
    /// `None` until the first span is looked up.
    lengths: Option<Lengths>,
    /// The bytes of the spans that were looked up.
    spans: HashMap<SpanId, Option<usize>>,
}

impl PlannedText {
    /// Applies the events of one request, all or none. Duplicates, which are not fresh, close nothing.
    pub(super) fn take(
        &mut self,
        run: RunId,
        events: &[NewEvent],
        fresh: &[bool],
        open: &OpenNow<'_>,
    ) -> Result<(), Overflow> {
        let before = self.lengths;
        let mut undo = Vec::new();
        for (event, fresh) in events.iter().zip(fresh) {
            let (span_id, text) = if event.event_type.is_ephemeral() {
                let (Some(span_id), Ok(text)) = (&event.span_id, event.delta_text()) else { continue };
                (span_id, Some(text))
            } else {
                match Closes::of(&event.event_type, event.span_id.as_ref()) {
                    Closes::Span(span_id) if *fresh => (span_id, None),
                    // Nothing follows the end of a run.
                    _ => continue,
                }
            };
            let (run_now, span_now) = open(run, span_id);
            let lengths = self.lengths.get_or_insert(run_now);
            let span = self.spans.entry(span_id.clone()).or_insert(span_now);
            undo.push((span_id, *span));
            match (text, *span) {
                (Some(text), so_far) => {
                    if let Err(overflow) = lengths.add(so_far, text.len()) {
                        self.lengths = before;
                        self.spans.extend(undo.into_iter().rev().map(|(span_id, span)| (span_id.clone(), span)));
                        return Err(overflow);
                    }
                    *span = Some(so_far.unwrap_or(0) + text.len());
                }
                (None, Some(bytes)) => {
                    lengths.close(bytes);
                    *span = None;
                }
                (None, None) => {}
            }
        }
        Ok(())
    }
}
