//! Texts: messages and reasoning, while they are written and when they are complete.

use std::borrow::Cow;

use super::{AgUi, Said, words::Word};
use crate::{
    domain::meaning::{Kind, Text},
    faces::conversation::Part,
};

/// An open text as its reader knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    kind: Kind,
    /// Whether it was begun again as another message.
    is_again: bool,
}

impl AgUi {
    pub(super) fn text(&mut self, part: &Part<'_>, out: &mut Vec<Said>) {
        let (Part::Opened(text) | Part::Delta(text, _) | Part::Replaced(text, _) | Part::Closed(text, _)) = part else {
            return;
        };
        if let Part::Closed(_, Some(event)) = part {
            self.ids.keep(event);
            if let Some(history) = &mut self.history {
                history.text(&self.ids, event);
            }
        }
        if self.history.is_some() {
            return;
        }
        let (id, role) = (self.ids.of(text.span.as_str()), role(text));
        // AG-UI cannot replace a text: the message ends, and another has the right text.
        let named = |is_again: bool| if is_again { Cow::Owned(format!("{id}~")) } else { Cow::Borrowed(&*id) };
        match part {
            Part::Opened(_) => {
                if role != "assistant" {
                    self.ids.note_other(text.span.as_str());
                }
                self.texts.insert(text.span.clone(), Begun { kind: text.kind, is_again: false });
                out.extend(begins(text.kind, &id, role).iter().flatten().map(Said::new));
            }
            Part::Delta(_, delta) => {
                if let Some(begun) = self.texts.get(&text.span) {
                    out.push(Said::new(&goes_on(begun.kind, &named(begun.is_again), delta)));
                }
            }
            Part::Replaced(_, whole) => {
                let Some(begun) = self.texts.get_mut(&text.span) else { return };
                out.extend(ends(begun.kind, &named(begun.is_again)).iter().flatten().map(Said::new));
                (begun.kind, begun.is_again) = (text.kind, true);
                // An open message cannot become the result of a call.
                let role = if role == "tool" { "assistant" } else { role };
                out.extend(begins(text.kind, &named(true), role).iter().flatten().map(Said::new));
                if !whole.is_empty() {
                    out.push(Said::new(&goes_on(text.kind, &named(true), whole)));
                }
            }
            _ => {
                if let Some(begun) = self.texts.remove(&text.span) {
                    out.extend(ends(begun.kind, &named(begun.is_again)).iter().flatten().map(Said::new));
                }
            }
        }
    }
}

fn begins<'a>(kind: Kind, message_id: &'a str, role: &'a str) -> [Option<Word<'a>>; 2] {
    match kind {
        Kind::Message => [Some(Word::TextMessageStart { message_id, role }), None],
        Kind::Reasoning => {
            [Some(Word::ReasoningStart { message_id }), Some(Word::ReasoningMessageStart { message_id, role })]
        }
    }
}

fn goes_on<'a>(kind: Kind, message_id: &'a str, delta: &'a str) -> Word<'a> {
    match kind {
        Kind::Message => Word::TextMessageContent { message_id, delta },
        Kind::Reasoning => Word::ReasoningMessageContent { message_id, delta },
    }
}

fn ends(kind: Kind, message_id: &str) -> [Option<Word<'_>>; 2] {
    match kind {
        Kind::Message => [Some(Word::TextMessageEnd { message_id }), None],
        Kind::Reasoning => [Some(Word::ReasoningMessageEnd { message_id }), Some(Word::ReasoningEnd { message_id })],
    }
}

/// The role of a text in AG-UI.
pub(super) fn role(text: &Text) -> &str {
    match (text.kind, &*text.role) {
        (Kind::Reasoning, _) => "reasoning",
        (_, role @ ("user" | "system" | "developer" | "tool")) => role,
        _ => "assistant",
    }
}
