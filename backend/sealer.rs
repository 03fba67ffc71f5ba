//! The task that seals the log: once a day, by default, it binds the heads of all runs that changed to the seal before,
//! and signs the result if the server has a key. Several servers on one database take turns; whoever comes first seals.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    domain::{
        chain::seal::Key,
        limits::{SEAL_LOOK_MS, SEAL_REST},
    },
    store::{self, Store},
};

/// A handle on the sealer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sealer {
    pub store: Store,
    pub clock: Clock,
    /// How long after a seal the next one is due.
    pub every: Duration,
    pub key: Option<Arc<Key>>,
}

impl Sealer {
    /// Seals until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let work = async {
            let mut look = tokio::time::interval(self.every.min(Duration::from_millis(SEAL_LOOK_MS)));
            loop {
                look.tick().await;
                if let Err(error) = Box::pin(self.seal_if_due()).await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the log could not be sealed");
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    async fn seal_if_due(&self) -> Result<(), store::Error> {
        let every = TimeDelta::from_std(self.every).unwrap_or(TimeDelta::MAX);
        let last = self.store.seals().last_at().await?;
        if last.is_some_and(|last| self.clock.now() - last < every) {
            return Ok(());
        }
        loop {
            let began = Instant::now();
            let Some(new) = self.store.seals().seal(self.clock.now(), self.key.as_deref()).await? else { break };
            let (number, sha256, runs) = (new.seal.number, new.seal.sha256, new.runs);
            // In the log as well, where no change of the database changes it.
            tracing::info!(number, %sha256, runs, "the log is sealed");
            if !new.has_more {
                break;
            }
            // The first seals of an old log; nobody waits for them.
            tokio::time::sleep(began.elapsed() * SEAL_REST).await;
        }
        Ok(())
    }
}
