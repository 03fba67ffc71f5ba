//! Who may write: a few at once in this process, and one at a time to a folder, whichever process it is in.
//!
//! Nobody waits without an end, and no thread of the process waits at all: a folder may be shared with a machine that
//! has gone away.

use std::time::Duration;

use cap_std::fs::File;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    folder::{Folder, Path},
    off_the_loop,
};
use crate::domain::limits::{SAVED_PAUSE_MS, SAVED_WAIT_MS_MAX, SAVED_WRITERS_MAX, SAVED_WRITERS_WAITING_MAX};

#[derive(Debug)]
pub(super) struct Turns {
    /// Each holds a session in memory.
    writers: Semaphore,
    waiting: Semaphore,
    stop: CancellationToken,
}

impl Turns {
    pub(super) fn new(stop: CancellationToken) -> Self {
        let (writers, waiting) = (Semaphore::new(SAVED_WRITERS_MAX), Semaphore::new(SAVED_WRITERS_WAITING_MAX));
        Self { writers, waiting, stop }
    }

    /// Becomes one of the writers of this process.
    pub(super) async fn take(&self) -> Result<SemaphorePermit<'_>, Error> {
        if let Ok(turn) = self.writers.try_acquire() {
            return Ok(turn);
        }
        let _place = self.waiting.try_acquire().map_err(|_| Error::Busy)?;
        let turn = tokio::time::timeout(Duration::from_millis(SAVED_WAIT_MS_MAX), self.writers.acquire());
        tokio::select! {
            () = self.stop.cancelled() => Err(Error::Busy),
            turn = turn => turn.map_err(|_| Error::Busy)?.map_err(|_| Error::Busy),
        }
    }

    /// The folder, which is made if need be, and its lock.
    pub(super) async fn lock(&self, path: Path) -> Result<(Folder, File), Error> {
        for _ in 0..SAVED_WAIT_MS_MAX / SAVED_PAUSE_MS {
            let path = path.clone();
            let locked = off_the_loop(move || {
                let folder = path.made()?;
                Ok(folder.try_lock()?.map(|lock| (folder, lock)))
            });
            if let Some(locked) = locked.await? {
                return Ok(locked);
            }
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep(Duration::from_millis(SAVED_PAUSE_MS)) => {}
            }
        }
        Err(Error::Locked)
    }
}
