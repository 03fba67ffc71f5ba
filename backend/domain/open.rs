//! The text of messages that are still being written.
//!
//! Tokens are never rows. What makes them safe to join late is this fold: per open span the text so far, closed by the
//! durable event that holds the whole. [`OpenSpans::take`] numbers each delta with the count of characters before it.

use std::collections::BTreeMap;

use super::{
    event::EventType,
    id::SpanId,
    limits::{OPEN_SPANS_MAX, OPEN_TEXT_BYTES_MAX},
};

/// One span whose text is not complete yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSpan {
    pub event_type: EventType,
    pub text: String,
    /// Length of `text` in Unicode characters: the offset the next delta will carry.
    pub chars: usize,
}

/// All open spans of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenSpans(BTreeMap<SpanId, OpenSpan>);

/// The text of a run's open spans is over a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the streamed text of one span may reach {OPEN_TEXT_BYTES_MAX} bytes, of {OPEN_SPANS_MAX} spans at a time")]
pub struct Overflow;

impl OpenSpans {
    /// Adds a delta and returns its offset: the number of characters of that span before it.
    pub fn take(&mut self, span_id: &SpanId, event_type: &EventType, text: &str) -> Result<usize, Overflow> {
        if !self.0.contains_key(span_id) && self.0.len() >= OPEN_SPANS_MAX {
            return Err(Overflow);
        }
        let span = self.0.entry(span_id.clone()).or_insert_with(|| OpenSpan {
            event_type: event_type.clone(),
            text: String::new(),
            chars: 0,
        });
        if span.text.len() + text.len() > OPEN_TEXT_BYTES_MAX {
            return Err(Overflow);
        }
        let offset = span.chars;
        span.text.push_str(text);
        span.chars += text.chars().count();
        Ok(offset)
    }

    /// A durable event closes the span it names, and a terminal one closes all.
    pub fn close(&mut self, event_type: &EventType, span_id: Option<&SpanId>) {
        match (event_type.family(), event_type.action()) {
            ("run", "completed" | "failed" | "cancelled") => self.0.clear(),
            (_, "completed" | "failed") => {
                if let Some(span_id) = span_id {
                    self.0.remove(span_id);
                }
            }
            _ => {}
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&SpanId, &OpenSpan)> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of text held.
    pub fn bytes(&self) -> usize {
        self.0.values().map(|span| span.text.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_characters_and_the_durable_event_closes_the_span() {
        let (mut open, span) = (OpenSpans::default(), "m1".parse::<SpanId>().unwrap());
        let delta: EventType = "message.delta".parse().unwrap();
        assert_eq!(open.take(&span, &delta, "héé😀"), Ok(0));
        assert_eq!(open.take(&span, &delta, "x"), Ok(4));
        assert_eq!(open.iter().next().unwrap().1.text, "héé😀x");
        open.close(&"tool.completed".parse().unwrap(), Some(&"other".parse().unwrap()));
        assert!(!open.is_empty());
        open.close(&"message.completed".parse().unwrap(), Some(&span));
        assert!(open.is_empty());
    }

    #[test]
    fn a_span_that_grows_over_its_bound_is_refused_and_stays_as_it_was() {
        let (mut open, span) = (OpenSpans::default(), "m1".parse::<SpanId>().unwrap());
        let delta: EventType = "message.delta".parse().unwrap();
        open.take(&span, &delta, &"x".repeat(OPEN_TEXT_BYTES_MAX)).unwrap();
        assert_eq!(open.take(&span, &delta, "y"), Err(Overflow));
        assert_eq!(open.bytes(), OPEN_TEXT_BYTES_MAX);
    }
}
