//! Texts: messages and reasoning, while they are written and when they are complete.

use std::borrow::Cow;

use super::{AgUi, Said, words::Word};
use crate::{
    domain::meaning::{Kind, Text},
    faces::conversation::Part,
};

/// A text as its reader was told it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    is_agents: bool,
    /// It was said again as another message.
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
        // There is no word for a text that changed: the message ends, and another has the right text.
        let named = |is_again: bool| if is_again { Cow::Owned(format!("{id}~")) } else { Cow::Borrowed(&*id) };
        let mut word = |word: Word<'_>| out.push(Said::new(&word));
        match part {
            Part::Opened(_) => {
                let is_agents = role == "assistant";
                if !is_agents {
                    self.ids.note_other(text.span.as_str());
                }
                self.texts.insert(text.span.clone(), Begun { is_agents, is_again: false });
                begins(text.kind, &id, role, &mut word);
            }
            Part::Delta(_, delta) => {
                if let Some(begun) = self.texts.get(&text.span) {
                    goes_on(text.kind, &named(begun.is_again), delta, &mut word);
                }
            }
            Part::Replaced(_, whole) => {
                let Some(begun) = self.texts.get_mut(&text.span) else { return };
                ends(text.kind, &named(begun.is_again), &mut word);
                begun.is_again = true;
                begins(text.kind, &named(true), role, &mut word);
                if !whole.is_empty() {
                    goes_on(text.kind, &named(true), whole, &mut word);
                }
            }
            _ => {
                if let Some(begun) = self.texts.remove(&text.span) {
                    ends(text.kind, &named(begun.is_again), &mut word);
                    if !begun.is_agents {
                        self.ids.note_other(text.span.as_str());
                    }
                }
            }
        }
    }
}

fn begins(kind: Kind, message_id: &str, role: &str, word: &mut impl FnMut(Word<'_>)) {
    match kind {
        Kind::Message => word(Word::TextMessageStart { message_id, role }),
        Kind::Reasoning => {
            word(Word::ReasoningStart { message_id });
            word(Word::ReasoningMessageStart { message_id, role });
        }
    }
}

fn goes_on(kind: Kind, message_id: &str, delta: &str, word: &mut impl FnMut(Word<'_>)) {
    word(match kind {
        Kind::Message => Word::TextMessageContent { message_id, delta },
        Kind::Reasoning => Word::ReasoningMessageContent { message_id, delta },
    });
}

fn ends(kind: Kind, message_id: &str, word: &mut impl FnMut(Word<'_>)) {
    match kind {
        Kind::Message => word(Word::TextMessageEnd { message_id }),
        Kind::Reasoning => {
            word(Word::ReasoningMessageEnd { message_id });
            word(Word::ReasoningEnd { message_id });
        }
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
