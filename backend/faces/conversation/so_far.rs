//! Texts so far that are not shown yet, or not wholly.

use super::Event;
use crate::{
    domain::{id::SpanId, meaning::Text},
    timeline::open::{HeldText, OpenText},
};

/// A text so far that is being shown, piece by piece.
pub(super) struct CatchingUp {
    text: Text,
    pieces: Box<dyn Iterator<Item = String> + Send>,
    /// Bytes that were delivered before.
    before: usize,
}

impl CatchingUp {
    pub(super) fn new(text: Text, open: &OpenText, before: usize) -> Self {
        Self { text, pieces: Box::new(open.pieces()), before }
    }

    /// The next piece of the text, without what was delivered before.
    pub(super) fn next(&mut self) -> Option<(&Text, String)> {
        let mut piece = self.pieces.next()?;
        let skipped = self.before.min(piece.len());
        self.before -= skipped;
        Some((&self.text, piece.split_off(skipped)))
    }
}

/// The texts so far of other processes that nothing has continued since.
#[derive(Debug, Default)]
pub(super) struct HeldTexts(Vec<HeldText>);

impl HeldTexts {
    /// Whether the text is held: one of this process is not.
    pub(super) fn hold(&mut self, open: &OpenText) -> bool {
        self.0.retain(|held| held.span_id != open.span_id);
        if open.is_copy {
            self.0.push(open.hold());
        }
        open.is_copy
    }

    /// Stops holding the text of a span, of which a token has come; `None` if it was not held.
    pub(super) fn release(&mut self, span: &SpanId) -> Option<HeldText> {
        let index = self.0.iter().position(|held| held.span_id == *span)?;
        Some(self.0.swap_remove(index))
    }

    pub(super) fn close(&mut self, event: &Event<'_>) {
        self.0.retain(|held| !event.closes(&held.span_id));
    }
}
