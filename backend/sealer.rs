//! The task that seals the log: once a day, by default, it binds the heads of all runs that changed to the seal before,
//! and signs the result if the server has a key. Of several servers on one database, the first one seals.
//!
//! Each server remembers the last seal that it has seen ([`seen`]). If the log no longer has it, sealed data was
//! replaced or an older copy restored; nothing more is sealed until the operator has decided.

pub mod seen;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use chrono::TimeDelta;
use tokio::time::Instant;

use self::seen::SeenFile;
use crate::{
    clock::Clock,
    domain::{
        artifact::Hash,
        chain::seal::{Key, SealRef},
        limits::{SEAL_LOOK_MS, SEAL_REST},
    },
    store::{self, Store},
    supervise::{LATE, Supervisor},
};

/// A handle on the sealer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sealer {
    pub store: Store,
    pub clock: Clock,
    /// How long after a seal the next one is due.
    pub every: Duration,
    pub key: Option<Arc<Key>>,
    pub data_dir: PathBuf,
}

/// Why nothing was sealed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error(
        "the log does not have seal {number}, sha256 {sha256}, any more: seals were removed or replaced, or an older copy \
         of the database was restored; run `runreel verify --all`, and remove {path} to seal what is there now"
    )]
    Replaced { number: i64, sha256: Hash, path: PathBuf },
}

impl Sealer {
    /// Seals when it is due, as long as the supervisor's tasks run.
    pub fn start(self, supervisor: &Supervisor) {
        let turns = (LATE, self.every.min(Duration::from_millis(SEAL_LOOK_MS)));
        supervisor.every("sealer", turns, self, |sealer, ()| Box::pin(sealer.seal_if_due()));
    }

    /// Seals if the last seal is old enough, and the log still has the seal that this server has seen last.
    pub async fn seal_if_due(&self) -> Result<(), Error> {
        let every = TimeDelta::from_std(self.every).unwrap_or(TimeDelta::MAX);
        let file = SeenFile::of(&self.data_dir, self.store.seals().log().await?);
        let seen = file.read().await.map_err(|error| Error::File(file.path().to_owned(), error))?;
        let last = self.store.seals().last().await?;
        if let Some(SealRef { number, sha256 }) = seen
            && self.store.seals().sha256_of(number).await? != Some(sha256)
        {
            metrics::counter!("runreel_seals_refused_total").increment(1);
            return Err(Error::Replaced { number, sha256, path: file.path().to_owned() });
        }
        let mut last_seen = last.as_ref().map(|(seen, _)| *seen);
        if let Some(last) = last_seen.filter(|last| seen.is_none_or(|seen| last.number > seen.number)) {
            note(&file, last).await;
        }
        if last.is_some_and(|(_, at)| self.clock.now() - at < every) {
            return Ok(());
        }
        loop {
            let began = Instant::now();
            let before = last_seen.map(|last| last.sha256);
            let made = self.store.seals().seal(self.clock.now(), before, self.key.as_deref()).await?;
            let Some(new) = made else { break };
            let (made, runs) = (new.seal.reference(), new.runs);
            // Logged as well, out of reach of changes to the database.
            tracing::info!(number = made.number, sha256 = %made.sha256, runs, "the log is sealed");
            note(&file, made).await;
            last_seen = Some(made);
            if !new.has_more {
                break;
            }
            // Only when catching up on an old log, which is not urgent.
            tokio::time::sleep(began.elapsed() * SEAL_REST).await;
        }
        Ok(())
    }
}

async fn note(file: &SeenFile, seal: SealRef) {
    if let Err(error) = file.write(seal).await {
        tracing::warn!(path = %file.path().display(), %error, "the last seal is not noted");
    }
}
