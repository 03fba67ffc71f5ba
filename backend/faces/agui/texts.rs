//! Texts: messages and reasoning, while they are written and when they are complete.

use super::{AgUi, Said, words::Word};
use crate::{
    domain::meaning::{Kind, Text},
    faces::conversation::Part,
};

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
        // What people and tools said came from the client.
        if matches!(&*text.role, "user" | "tool") {
            return;
        }
        let (id, role) = (self.ids.of(text.span.as_str()), role(text));
        let again = || format!("{id}~");
        let mut word = |word: Word<'_>| out.push(Said::new(&word));
        match part {
            Part::Opened(_) => begins(text.kind, &id, role, &mut word),
            Part::Delta(_, delta) => goes_on(text.kind, &id, delta, &mut word),
            // There is no word for it: the message ends, and another has the right text.
            Part::Replaced(_, whole) => {
                let again = again();
                ends(text.kind, &id, &mut word);
                begins(text.kind, &again, role, &mut word);
                if !whole.is_empty() {
                    goes_on(text.kind, &again, whole, &mut word);
                }
                self.replaced = Some(text.span.clone());
            }
            _ if self.replaced.take_if(|replaced| *replaced == text.span).is_some() => {
                ends(text.kind, &again(), &mut word);
            }
            _ => ends(text.kind, &id, &mut word),
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
