//! Handles on open texts, which readers read later.

use std::{
    borrow::Cow,
    sync::{Arc, Weak},
};

use super::{ASSISTANT, text::Text};
use crate::{
    domain::{context::RunContext, event::EventType, id::SpanId},
    quota::Quota,
};

/// The text so far of one open span, for a reader that joins now.
#[derive(Clone, Debug)]
pub struct OpenText {
    pub context: Arc<RunContext>,
    pub event_type: EventType,
    pub span_id: SpanId,
    /// As named by the first delta, else `assistant`; a copy is always `assistant`.
    pub role: Cow<'static, str>,
    /// Characters of the text: the offset of the next delta.
    pub chars: usize,
    /// Whether it is another process's text; that process may have been killed.
    pub is_copy: bool,
    pub(super) bytes: usize,
    pub(super) text: Arc<Text>,
}

/// The same without keeping the text, which is available as long as the process has it.
#[derive(Clone, Debug)]
pub struct HeldText {
    context: Arc<RunContext>,
    event_type: EventType,
    pub span_id: SpanId,
    role: Cow<'static, str>,
    chars: usize,
    bytes: usize,
    text: Weak<Text>,
}

impl HeldText {
    /// The text as it was then; `None` if the process no longer has it.
    pub fn open(self) -> Option<OpenText> {
        let Self { context, event_type, span_id, role, chars, bytes, text } = self;
        Some(OpenText { context, event_type, span_id, role, chars, is_copy: true, bytes, text: text.upgrade()? })
    }
}

impl OpenText {
    /// A text outside any `OpenTexts`, in pieces of two characters, for tests of readers.
    #[doc(hidden)]
    pub fn for_tests(context: &Arc<RunContext>, event: &EventType, span: &SpanId, text: &str, is_copy: bool) -> Self {
        let share = Quota::new(1, 1).try_take(&context.owner_id, 0).expect("nothing is free");
        let (chars, bytes) = (text.chars().collect::<Vec<_>>(), text.len());
        let kept = Text::of(chars.chunks(2).map(|two| two.iter().collect()).collect(), share);
        let chars = chars.len();
        let (context, event_type, span_id) = (Arc::clone(context), event.clone(), span.clone());
        let role = Cow::Borrowed(ASSISTANT);
        Self { context, event_type, span_id, role, chars, is_copy, bytes, text: Arc::new(kept) }
    }

    /// The same text with this role.
    #[doc(hidden)]
    #[must_use]
    pub fn by(self, role: Option<&'static str>) -> Self {
        Self { role: Cow::Borrowed(role.unwrap_or(ASSISTANT)), ..self }
    }

    /// A handle that does not keep the text.
    pub fn hold(&self) -> HeldText {
        let Self { context, event_type, span_id, role, chars, bytes, text, .. } = self.clone();
        HeldText { context, event_type, span_id, role, chars, bytes, text: Arc::downgrade(&text) }
    }

    /// The text in pieces of a bounded size, read lazily.
    pub fn pieces(&self) -> impl Iterator<Item = String> + Send + use<> {
        let (text, mut left) = (Arc::clone(&self.text), self.bytes);
        (0..).map_while(move |index| {
            let piece = text.piece(index, left)?;
            left -= piece.len();
            Some(piece)
        })
    }
}
