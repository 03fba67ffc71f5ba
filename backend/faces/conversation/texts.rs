//! What is known of the texts that are shown while they are written.

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
