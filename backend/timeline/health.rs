//! Whether events can be stored: the results of the lanes' last commits, and a small write of the same kind where there
//! was no recent one.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::Timeline;
use crate::{
    domain::limits::VOLUME_BYTES_MIN,
    store::{Outage, Store},
};

/// How long a successful commit counts as the state of its lane.
const FRESH: Duration = Duration::from_millis(700);
/// How long a failure counts, so that many requests at once cause no load.
const FAILED_FRESH: Duration = Duration::from_millis(200);

/// Why no event can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("{0}")]
    Database(Outage),
    /// A task of the server failed and has not run long enough since.
    #[error("a part of the server has failed: {0}")]
    Task(&'static str),
}

#[derive(Clone, Copy, Debug)]
struct State {
    at: Instant,
    outage: Option<Outage>,
}

/// The last known state of each lane. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Health {
    lanes: Arc<Mutex<Vec<Option<State>>>>,
    /// Why the log, which was set back, cannot continue as another history.
    unreconciled: Arc<Mutex<Option<Outage>>>,
    /// Held during a check, so that concurrent callers wait for one result.
    trying: Arc<tokio::sync::Mutex<()>>,
}

impl Health {
    pub(super) fn new(lanes: usize) -> Self {
        Self { lanes: Arc::new(Mutex::new(vec![None; lanes])), unreconciled: Arc::default(), trying: Arc::default() }
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Option<State>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane has committed events.
    pub(super) fn wrote(&self, lane: u8) {
        self.set(lane, None);
    }

    /// A lane could not commit events.
    pub(super) fn failed(&self, lane: u8, outage: Outage) {
        self.set(lane, Some(outage));
    }

    /// Records that the log is the one readers were shown, or why it cannot be continued from there.
    pub(super) fn reconciled(&self, reconciled: Result<(), Outage>) {
        *self.unreconciled.lock().unwrap_or_else(PoisonError::into_inner) = reconciled.err();
    }

    fn set(&self, lane: u8, outage: Option<Outage>) {
        if let Some(state) = self.lanes().get_mut(usize::from(lane)) {
            *state = Some(State { at: Instant::now(), outage });
        }
    }

    /// The lanes without a recent result, each with why its last commit failed.
    fn stale(&self) -> Vec<(u8, Option<Outage>)> {
        let is_stale = |state: &State| state.at.elapsed() > if state.outage.is_some() { FAILED_FRESH } else { FRESH };
        let lanes = self.lanes();
        let lanes = lanes.iter().zip(0u8..).filter(|(state, _)| state.as_ref().is_none_or(is_stale));
        lanes.map(|(state, lane)| (lane, state.and_then(|state| state.outage))).collect()
    }

    /// Whether every lane can store events; lanes without a recent result are tried.
    async fn check(&self, store: &Store) -> Result<(), Outage> {
        let _one = self.trying.lock().await;
        if let Some(outage) = *self.unreconciled.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(outage);
        }
        for (lane, failed) in self.stale() {
            // A full disk may have room for an existing row, and none for an event.
            match store.try_lane(lane, failed.is_some()).await {
                Ok(()) => self.wrote(lane),
                Err(error) => {
                    let outage = error.outage().or(failed).unwrap_or(Outage::Forbidden);
                    self.failed(lane, outage);
                    // One failure decides; trying the other lanes could take as long again.
                    return Err(outage);
                }
            }
        }
        match self.lanes().iter().flatten().find_map(|state| state.outage) {
            Some(outage) => Err(outage),
            None => Ok(()),
        }
    }
}

impl Timeline {
    /// Whether an event that arrives now could be stored.
    pub async fn ready(&self) -> Result<(), NotReady> {
        if let Some(task) = self.shared.supervisor.failing() {
            return Err(NotReady::Task(task));
        }
        // An existing row can be written on a full volume too, so the small write does not detect that.
        let left = self.shared.volume.as_deref().and_then(|volume| rustix::fs::statvfs(volume).ok());
        if left.is_some_and(|left| left.f_bavail.saturating_mul(left.f_frsize) < VOLUME_BYTES_MIN) {
            return Err(NotReady::Database(Outage::Full));
        }
        self.shared.health.check(self.store()).await.map_err(NotReady::Database)
    }
}
