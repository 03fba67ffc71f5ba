//! Removal of threads and checkpoints: pruning, deletion, expiry.
//!
//! Threads are read and written through the store alone. All removals are made here, so that they are counted.
//! Invariants: a thread with a run that has not ended does not expire, and the newest checkpoint of such a run stays.
//!
//! Start reading at [`Threads::sweep`].

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    clock::Clock,
    domain::{
        checkpoint::MadeBy,
        context::RunContext,
        id::{RunId, ThreadId},
        limits::{
            CHECKPOINT_SWEEP_BACK_MS, CHECKPOINT_SWEEP_ROWS, CHECKPOINTS_KEEP_DEFAULT, PRUNE_IDS_MAX, THREAD_SWEEP_MS,
            THREAD_SWEEP_ROWS,
        },
        principal::OwnerId,
    },
    store::{
        self, Store,
        prune::Pruned,
        threads::{ThreadChange, ThreadRecord, TtlChange},
    },
    supervise::Supervisor,
};

/// How threads are pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Leave the newest checkpoint of each namespace.
    KeepLatest,
    /// Delete the threads.
    Delete,
}

/// A handle on the removal of threads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Threads {
    store: Store,
    clock: Clock,
    ttl_s: Option<i64>,
    keep: u32,
}

impl Threads {
    /// `ttl_s` is the time to live of threads without their own, seconds; `None` means forever.
    pub fn new(store: Store, clock: Clock, ttl_s: Option<i64>) -> Self {
        Self { store, clock, ttl_s, keep: CHECKPOINTS_KEEP_DEFAULT }
    }

    /// Sets how many of the engine's checkpoints a thread keeps; 0 keeps all.
    #[must_use]
    pub fn keeping(self, keep: u32) -> Self {
        Self { keep, ..self }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// When a thread expires unless it is updated again.
    pub fn expires_at(&self, thread: &ThreadRecord) -> Option<DateTime<Utc>> {
        let ttl_s = thread.ttl_s.or(self.ttl_s).filter(|ttl_s| *ttl_s > 0)?;
        thread.updated_at.checked_add_signed(TimeDelta::seconds(ttl_s))
    }

    /// Creates the thread that only this run uses, unless it exists.
    pub async fn own(&self, owner: &OwnerId, run: RunId) -> Result<ThreadId, store::Error> {
        let own = own_thread(run);
        // It is removed with the run and never expires: a run may wait for a person longer than threads live.
        let for_ever = ThreadChange { ttl: TtlChange::To(0), ..ThreadChange::default() };
        self.store.threads().put(owner, &own, &for_ever, self.clock.now()).await?;
        Ok(own)
    }

    /// Removes the threads that only these runs used, if they exist.
    pub async fn forget_own(&self, owner: &OwnerId, runs: &[RunId]) -> Result<(), store::Error> {
        let own: Vec<ThreadId> = runs.iter().map(|run| own_thread(*run)).collect();
        for some in own.chunks(PRUNE_IDS_MAX) {
            self.delete(owner, some).await?;
        }
        Ok(())
    }

    /// Deletes threads with their checkpoints. Their runs stay: they are the log.
    pub async fn delete(&self, owner: &OwnerId, threads: &[ThreadId]) -> Result<Pruned, store::Error> {
        let gone = self.store.threads().delete(owner, threads).await?;
        count(gone, "deleted");
        Ok(gone)
    }

    pub async fn prune(&self, owner: &OwnerId, threads: &[ThreadId], how: Strategy) -> Result<Pruned, store::Error> {
        match how {
            Strategy::Delete => self.delete(owner, threads).await,
            Strategy::KeepLatest => {
                let gone = self.store.threads().keep_latest(owner, threads).await?;
                count(gone, "pruned");
                Ok(gone)
            }
        }
    }

    /// Removes the checkpoints created by these runs.
    pub async fn delete_for_runs(&self, owner: &OwnerId, runs: &[MadeBy]) -> Result<Pruned, store::Error> {
        let gone = self.store.threads().delete_for_runs(owner, runs).await?;
        count(gone, "pruned");
        Ok(gone)
    }

    /// Removes all expired threads of all owners. Several processes may do so at once.
    pub async fn sweep(&self) -> Result<Pruned, store::Error> {
        let mut all = Pruned::default();
        loop {
            let gone = self.store.threads().delete_expired(self.ttl_s, self.clock.now(), THREAD_SWEEP_ROWS).await?;
            count(gone, "expired");
            all += gone;
            // Rows locked by another process are removed by it.
            if gone.threads < THREAD_SWEEP_ROWS {
                return Ok(all);
            }
        }
    }

    /// Removes the engine's old checkpoints in recently used threads.
    pub async fn prune_old(&self) -> Result<Pruned, store::Error> {
        if self.keep == 0 {
            return Ok(Pruned::default());
        }
        let since = self.clock.now() - TimeDelta::milliseconds(CHECKPOINT_SWEEP_BACK_MS);
        let gone = self.store.threads().prune_old(i64::from(self.keep), since, CHECKPOINT_SWEEP_ROWS).await?;
        count(gone, "old");
        Ok(gone)
    }

    /// Sweeps and prunes as long as the supervisor's tasks run.
    pub fn start(&self, supervisor: &Supervisor) {
        let pause = Duration::from_millis(THREAD_SWEEP_MS);
        supervisor.every("threads", (pause, pause), self.clone(), |threads, ()| {
            Box::pin(async {
                let swept = threads.sweep().await;
                threads.prune_old().await.and(swept)
            })
        });
    }
}

/// The thread with a run's state: the run's thread, or one of its own if it has none or has a parent run.
pub fn state_thread(run: &RunContext) -> ThreadId {
    match &run.thread_id {
        Some(thread) if run.parent_run_id.is_none() => thread.clone(),
        _ => own_thread(run.run_id),
    }
}

/// The thread that only this run uses.
pub fn own_thread(run: RunId) -> ThreadId {
    ThreadId::trusted(&format!("run:{run}"))
}

fn count(gone: Pruned, reason: &'static str) {
    let number = |count: i64| u64::try_from(count).unwrap_or(0);
    metrics::counter!("runreel_threads_removed_total", "reason" => reason).increment(number(gone.threads));
    metrics::counter!("runreel_checkpoints_removed_total", "reason" => reason).increment(number(gone.checkpoints));
}
