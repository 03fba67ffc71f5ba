//! [`Unkept`]: the journal of a run that has ended.

use futures::future::BoxFuture;

use crate::{
    domain::{
        checkpoint::Checkpoint,
        id::{RunId, ThreadId},
    },
    engine::journal::{Journal, JournalError},
    store::checkpoints::{NewCheckpoint, NewWrites},
    threads::own_thread,
};

/// Keeps nothing. A message whose run somebody has ended goes its way all the same, from the beginning each time; there is
/// no run any more that could tell of it or go on.
pub(super) struct Unkept {
    thread: ThreadId,
}

impl Unkept {
    pub(super) fn of(run: RunId) -> Self {
        Self { thread: own_thread(run) }
    }
}

impl Journal for Unkept {
    fn latest(&self) -> BoxFuture<'_, Result<Option<Checkpoint>, JournalError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn put(&self, _: NewCheckpoint) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn write(&self, _: NewWrites) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn thread(&self) -> &ThreadId {
        &self.thread
    }
}
