//! Texts so far that are not shown yet, or only in part.

use std::sync::Arc;

use super::Event;
use crate::{
    bus::Frame,
    domain::{
        id::SpanId,
        meaning::{Text, What},
    },
    timeline::open::{HeldText, OpenText},
};

/// Bytes of other processes' tokens that are held together; a text beyond that is sent with its durable event.
const TOKENS_BYTES_MAX: usize = 256 * 1024;

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

/// The texts so far of other processes that no token has continued yet.
#[derive(Debug, Default)]
pub(super) struct HeldTexts {
    texts: Vec<HeldText>,
    /// Earlier tokens of texts that this process began to follow during the connection, each from its first one on.
    tokens: Vec<(SpanId, Arc<Frame>)>,
}

impl HeldTexts {
    /// Holds a text if it is another process's; returns whether it is.
    pub(super) fn hold(&mut self, open: &OpenText) -> bool {
        self.texts.retain(|held| held.span_id != open.span_id);
        self.tokens.retain(|(span, _)| *span != open.span_id);
        if open.is_copy {
            self.texts.push(open.hold());
        }
        open.is_copy
    }

    /// Stops holding the text of a span at its next token; `None` if it was not held.
    pub(super) fn release(&mut self, span: &SpanId) -> Option<HeldText> {
        let index = self.texts.iter().position(|held| held.span_id == *span)?;
        Some(self.texts.swap_remove(index))
    }

    /// Holds an [earlier](Frame::is_earlier) token.
    pub(super) fn keep(&mut self, frame: &Arc<Frame>, span: &SpanId) {
        let is_first = matches!(frame.meaning(), What::Token { offset: 0, .. });
        if is_first {
            self.texts.retain(|held| held.span_id != *span);
            self.tokens.retain(|(held, _)| held != span);
        }
        let bytes: usize = self.tokens.iter().map(|(_, held)| held.payload().as_str().len()).sum();
        if bytes + frame.payload().as_str().len() > TOKENS_BYTES_MAX {
            self.tokens.retain(|(held, _)| held != span);
        } else if is_first || self.tokens.iter().any(|(held, _)| held == span) {
            self.tokens.push((span.clone(), Arc::clone(frame)));
        }
    }

    /// Stops holding the tokens of a span at its next token: the offset at which they end, and the tokens; `None` if
    /// there are none.
    pub(super) fn take_tokens(&mut self, span: &SpanId) -> Option<(usize, Vec<Arc<Frame>>)> {
        let frames: Vec<_> = self.tokens.extract_if(.., |(held, _)| held == span).map(|(_, frame)| frame).collect();
        let What::Token { offset, piece, .. } = frames.last()?.meaning() else { return None };
        Some((offset + piece.chars().count(), frames))
    }

    pub(super) fn close(&mut self, event: &Event<'_>) {
        self.texts.retain(|held| !event.closes(&held.span_id));
        self.tokens.retain(|(span, _)| !event.closes(span));
    }
}
