//! Concurrency of file operations: a few at once in this process, of which one principal never has all; and one writer
//! at a time per folder, across processes.
//!
//! Every wait is bounded, and none blocks a thread of the process: a folder may be shared with a machine that has
//! disappeared.

use std::time::Duration;

use cap_std::fs::File;
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    folder::{Folder, Path},
    off_the_loop,
};
use crate::{
    domain::{
        limits::{
            SAVED_PAUSE_MS, SAVED_TURNS_MAX, SAVED_TURNS_OWN_MAX, SAVED_WAIT_MS_MAX, SAVED_WAITING_MAX,
            SAVED_WAITING_OWN_MAX,
        },
        principal::OwnerId,
    },
    quota::{Quota, Share},
};

#[derive(Debug)]
pub(super) struct Turns {
    /// Each permit allows one session in memory.
    working: Quota,
    waiting: Quota,
    stop: CancellationToken,
}

impl Turns {
    pub(super) fn new(stop: CancellationToken) -> Self {
        let working = Quota::new(SAVED_TURNS_MAX, SAVED_TURNS_OWN_MAX);
        Self { working, waiting: Quota::new(SAVED_WAITING_MAX, SAVED_WAITING_OWN_MAX), stop }
    }

    /// Waits for a turn of this process.
    pub(super) async fn take(&self, owner: &OwnerId) -> Result<Share, Error> {
        if let Ok(turn) = self.working.try_take(owner, 1) {
            return Ok(turn);
        }
        let _place = self.waiting.try_take(owner, 1).map_err(|_| Error::Busy)?;
        let turn = tokio::time::timeout(Duration::from_millis(SAVED_WAIT_MS_MAX), self.working.take(owner, 1));
        tokio::select! {
            () = self.stop.cancelled() => Err(Error::Busy),
            turn = turn => turn.map_err(|_| Error::Busy)?.map_err(|_| Error::Busy),
        }
    }

    /// Opens and locks the folder, creating it if necessary.
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
