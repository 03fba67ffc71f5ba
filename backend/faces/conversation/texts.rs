//! State of the texts that are shown while they are written.

use std::borrow::Cow;

use crate::{
    domain::id::Seq,
    faces::position::{Live, OPENED, PROGRESS_END, number},
};

/// This stream's state of a live text, beyond its position.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Whether the dialect has got its opening.
    has_begun: bool,
    /// Whether tokens were missed, so that its rest is sent with its durable event.
    is_given_up: bool,
    /// Received but not shown yet, because no position has its count of characters.
    held: String,
    held_chars: usize,
}

impl State {
    pub(super) fn has_begun(&self) -> bool {
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

    pub(super) fn state(&self, index: usize) -> &State {
        &self.0[index]
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

    /// The text to show with the next piece, up to a count that a position has. With numbers, the rest is held.
    pub(super) fn fitting<'a>(&mut self, index: usize, piece: &'a str, numbered: Option<(Seq, &Live)>) -> Cow<'a, str> {
        let Some((seq, live)) = numbered else { return Cow::Borrowed(piece) };
        let state = &mut self.0[index];
        let chars = state.held_chars + piece.chars().count();
        if live.chars() + chars >= (PROGRESS_END - OPENED) as usize {
            self.give_up(index);
            return Cow::Borrowed("");
        }
        state.held += piece;
        let count = number::deliverable(seq, live, chars);
        state.held_chars = chars - count;
        if count == 0 {
            return Cow::Borrowed("");
        }
        let mut text = std::mem::take(&mut state.held);
        let cut = text.char_indices().nth(count).map_or(text.len(), |(at, _)| at);
        state.held = text.split_off(cut);
        Cow::Owned(text)
    }

    pub(super) fn drop_held(&mut self, index: usize) {
        self.0[index].held.clear();
        self.0[index].held_chars = 0;
    }

    pub(super) fn held_chars(&self, index: usize) -> usize {
        self.0[index].held_chars
    }

    /// Records that the dialect gets the opening; false if it had it before.
    pub(super) fn begin(&mut self, index: usize) -> bool {
        !std::mem::replace(&mut self.0[index].has_begun, true)
    }
}
