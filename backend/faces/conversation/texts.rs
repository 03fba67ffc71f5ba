//! Texts of a conversation, and what is known of those that are shown while they are written.

use crate::{
    domain::{event::EventType, id::SpanId},
    faces::position::Kind,
};

/// A text, identified by its span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub span: SpanId,
    pub parent: Option<SpanId>,
    pub kind: Kind,
    pub role: String,
}

impl Text {
    /// A text of an agent.
    pub fn new(span: SpanId, kind: Kind) -> Self {
        Self { span, parent: None, kind, role: "assistant".to_owned() }
    }
}

/// The kind of text that an event or a token belongs to.
pub(super) fn kind_of(event_type: &EventType) -> Option<Kind> {
    match event_type.as_str() {
        "message.delta" | "message.completed" => Some(Kind::Message),
        "reasoning.delta" | "reasoning.completed" => Some(Kind::Reasoning),
        _ => None,
    }
}

/// What this stream knows of a live text beyond its position.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// The dialect was told of its opening.
    has_begun: bool,
    /// Tokens were missed, so its rest comes with its durable event.
    is_given_up: bool,
}

impl State {
    pub(super) fn has_begun(self) -> bool {
        self.has_begun
    }
}

/// The states of the live texts, in the order of the position.
#[derive(Debug)]
pub(super) struct Texts(Vec<State>);

impl Texts {
    pub(super) fn new(count: usize) -> Self {
        Self(vec![State::default(); count])
    }

    pub(super) fn push(&mut self) {
        self.0.push(State::default());
    }

    pub(super) fn remove(&mut self, index: usize) -> State {
        self.0.remove(index)
    }

    /// Whether none of its tokens were missed.
    pub(super) fn is_whole(&self, index: usize) -> bool {
        !self.0[index].is_given_up
    }

    pub(super) fn give_up(&mut self, index: usize) {
        self.0[index].is_given_up = true;
    }

    /// Records that the dialect is told of the opening; false if it was before.
    pub(super) fn begin(&mut self, index: usize) -> bool {
        !std::mem::replace(&mut self.0[index].has_begun, true)
    }
}
