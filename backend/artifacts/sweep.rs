//! Removal of artifacts whose event was never stored, of bytes without an artifact, and of interrupted uploads.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::TryStreamExt as _;
use tokio_util::sync::CancellationToken;

use super::{Artifacts, Error};
use crate::domain::{
    artifact::Hash,
    limits::{
        ARTIFACT_AUDIT_SWEEPS, ARTIFACT_GRACE_MS, ARTIFACT_SWEEP_MS, ARTIFACT_SWEEP_ROWS, REMOVAL_DOUBT_MS,
        REMOVAL_MS_MAX,
    },
};

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// Artifacts without an event.
    pub artifacts: u64,
    /// Contents without an artifact.
    pub contents: u64,
    /// Interrupted uploads.
    pub uploads: u64,
}

impl Artifacts {
    /// Removes what has been unreferenced for longer than the grace period. Several processes may do so at once, also
    /// during uploads of the same content, which lose nothing.
    pub async fn sweep(&self) -> Result<SweepResult, Error> {
        self.sweep_until(&CancellationToken::new()).await
    }

    async fn sweep_until(&self, stop: &CancellationToken) -> Result<SweepResult, Error> {
        let before = self.clock.now() - TimeDelta::milliseconds(ARTIFACT_GRACE_MS);
        let mut swept = SweepResult::default();
        loop {
            let reconciled = self.store.artifacts().reconcile(before, ARTIFACT_SWEEP_ROWS).await?;
            swept.artifacts += reconciled.removed;
            if reconciled.kept + reconciled.removed < ARTIFACT_SWEEP_ROWS.unsigned_abs() {
                break;
            }
        }
        loop {
            let loose = self.store.artifacts().loose_content(before, ARTIFACT_SWEEP_ROWS).await?;
            let mut done = 0;
            for hash in loose.iter().take_while(|_| !stop.is_cancelled()) {
                done += u64::from(self.remove(*hash, before).await?);
            }
            swept.contents += done;
            // Contents locked by other processes are removed by them, or found again by a later sweep.
            if done == 0 || loose.len() < usize::try_from(ARTIFACT_SWEEP_ROWS).unwrap_or(usize::MAX) {
                break;
            }
        }
        swept.uploads = self.blobs.remove_unfinished(before).await?;
        count(swept);
        Ok(swept)
    }

    /// Removes unreferenced content; `false` if it is in use again, or another process is removing it.
    async fn remove(&self, hash: Hash, before: DateTime<Utc>) -> Result<bool, Error> {
        let Some(seized) = self.store.artifacts().seize_content(hash, before).await? else { return Ok(false) };
        // Bounded, to end before the database could lose this connection and release the content to uploads.
        let removal = tokio::time::timeout(Duration::from_millis(REMOVAL_MS_MAX), self.blobs.remove(hash));
        let removed = removal.await.unwrap_or_else(|late| Err(Error::Unavailable(Box::new(late))));
        if let Err(error) = removed {
            // The store may still execute the removal, so the content stays locked until that is unlikely.
            tokio::time::sleep(Duration::from_millis(REMOVAL_DOUBT_MS)).await;
            return Err(error);
        }
        seized.gone().await?;
        Ok(true)
    }

    /// Records bytes that the database does not know, for example after a restore; a later sweep removes them. Returns
    /// how many there were.
    pub async fn audit(&self) -> Result<u64, Error> {
        let (mut listed, mut noted) = (self.blobs.list(), 0);
        while let Some(stored) = listed.try_next().await? {
            let content: Vec<(Hash, u64)> = stored.iter().map(|stored| (stored.hash, stored.size)).collect();
            if !content.is_empty() {
                noted += self.store.artifacts().note_content(&content, self.clock.now()).await?;
            }
        }
        Ok(noted)
    }

    /// Sweeps periodically until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        // Nothing is old enough at the start, so the first sweep follows the first pause.
        let pause = Duration::from_millis(ARTIFACT_SWEEP_MS);
        let mut every = tokio::time::interval_at(tokio::time::Instant::now() + pause, pause);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for sweeps in 0u64.. {
            if stop.run_until_cancelled(every.tick()).await.is_none() {
                return;
            }
            // Never cancelled in between: a removal in progress completes even if the lock on its row is lost.
            if let Err(error) = Box::pin(self.sweep_until(&stop)).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "artifact sweep failed");
            }
            if sweeps % ARTIFACT_AUDIT_SWEEPS == 0
                && let Some(Err(error)) = stop.run_until_cancelled(Box::pin(self.audit())).await
            {
                tracing::warn!(error = &error as &dyn std::error::Error, "artifact store not listed");
            }
        }
    }
}

fn count(swept: SweepResult) {
    for (what, number) in [("artifact", swept.artifacts), ("content", swept.contents), ("upload", swept.uploads)] {
        metrics::counter!("runreel_artifacts_swept_total", "what" => what).increment(number);
    }
}
