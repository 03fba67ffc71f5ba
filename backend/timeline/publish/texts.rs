//! Open texts from and to other processes, under the gate's lock.

use std::sync::Arc;

use super::{Gate, GateState};
use crate::{
    domain::{
        context::RunContext,
        id::{RunId, SpanId},
        principal::OwnerId,
    },
    store::open_texts::{Saved, SavedText, TextWrite},
    timeline::{emit::lane_of, live::LiveText, open::Unsaved},
};

impl Gate {
    /// Waits until there is something to save.
    pub(in crate::timeline) async fn unsaved(&self) {
        self.unsaved.notified().await;
    }

    pub(super) fn note_unsaved(&self, state: &GateState) {
        if state.open.has_unsaved() {
            self.unsaved.notify_one();
        }
        if state.open.has_unsent() {
            self.unsent.notify_one();
        }
    }

    /// From now on, texts that are saved are also sent.
    pub(in crate::timeline) fn send_texts_too(&self) {
        self.state().open.send_too();
    }

    /// Waits until there is something to send.
    pub(in crate::timeline) async fn unsent(&self) {
        self.unsent.notified().await;
    }

    /// Takes what is to be sent now.
    pub(in crate::timeline) fn take_unsent(&self) -> Vec<LiveText> {
        let mut state = self.state();
        let texts = state.open.take_unsent();
        self.note_unsaved(&state);
        texts
    }

    /// Publishes what other processes have sent, where it continues a copy held here.
    pub(in crate::timeline) fn publish_sent(&self, texts: Vec<LiveText>) {
        let mut state = self.state();
        for added in state.open.go_on(texts) {
            self.publish_delta(&state, added.context, added.delta, (added.offset, added.is_earlier));
        }
    }

    /// Takes what is to be saved now.
    pub(in crate::timeline) fn take_unsaved(&self) -> Unsaved {
        let GateState { open, published, .. } = &mut *self.state();
        let lanes = self.turns.len();
        open.take_unsaved(|run| published.at(u8::try_from(lane_of(run, lanes)).unwrap_or(0)))
    }

    /// Records the outcomes of a save.
    pub(in crate::timeline) fn note_saved(&self, texts: &[TextWrite], outcomes: &[Saved]) {
        let mut state = self.state();
        state.open.note_saved(texts, outcomes);
        self.note_unsaved(&state);
    }

    /// Takes back what could not be saved.
    pub(in crate::timeline) fn take_back(&self, unsaved: Unsaved) {
        let mut state = self.state();
        state.open.take_back(unsaved);
        self.note_unsaved(&state);
    }

    /// To be called before saved texts of these runs (`None`: all runs of the owner) are read. Returns the last piece
    /// of each of them known here.
    pub(in crate::timeline) fn begin_reading(&self, asked: &[(OwnerId, Option<RunId>)]) -> Vec<(RunId, SpanId, i32)> {
        self.state().open.begin_reading(asked)
    }

    /// To be called when they could not be read.
    pub(in crate::timeline) fn give_up_reading(&self) {
        self.state().open.give_up_reading();
    }

    /// Drops the texts of a run, here and where they are saved.
    pub(in crate::timeline) fn end_texts(&self, run: RunId) {
        let mut state = self.state();
        state.open.end(run);
        self.note_unsaved(&state);
    }

    /// Publishes what was read and is not yet known here.
    pub(in crate::timeline) fn publish_texts(
        &self,
        asked: &[(OwnerId, Option<RunId>)],
        read: Vec<(Arc<RunContext>, SavedText)>,
        is_complete: bool,
    ) {
        let mut state = self.state();
        for added in state.open.copy(asked, read, is_complete) {
            self.publish_delta(&state, added.context, added.delta, (added.offset, added.is_earlier));
        }
        self.note_unsaved(&state);
    }

    /// Drops the copies of texts that have no readers here any more.
    pub(in crate::timeline) fn drop_unheard_texts(&self) {
        let mut state = self.state();
        state.open.drop_unheard(|context| self.bus.is_heard(context.run_id, &context.owner_id));
    }
}
