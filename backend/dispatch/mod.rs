//! Jobs: which process executes which run.
//!
//! A run becomes a job in the transaction that creates it (`start: false` and an agent). [`Dispatch::claim`] assigns it
//! to a holder for the length of a lease, which the holder renews; a job whose lease lapses can be claimed by anyone,
//! until three holders have fallen silent and the run fails with `lease_lost`.
//!
//! Invariants kept here: a job has one holder at a time, and only the database decides who; whether a job may be
//! claimed follows from the status of its run and nothing else; a holder that releases a job spends no attempt. A
//! wake-up is only a hint to check, and polling needs none, so a lost wake-up costs a moment and never a job.
//!
//! Start reading at [`Dispatch::claim`], then [`renew`] (holding a lease inside this process) and `sweep`.

pub mod renew;
mod sweep;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::renew::LeaseRenewer;
use crate::{
    domain::{
        context::RunContext,
        id::{Name, RunId, Seq},
        job::Claimer,
        limits::{JOB_CLAIM_MAX, JOB_SERVED_NOTE_MS, JOB_WAKE_MS},
        run::{RunFields, Status},
    },
    store::{
        self,
        jobs::{JobState, LeaseTerm, Leased},
    },
    supervise::Supervisor,
    timeline::Timeline,
};

/// How jobs are assigned.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a holder may be silent.
    pub lease: Duration,
    /// How often jobs are polled for without a wake-up.
    pub poll: Duration,
}

/// A run assigned to a holder.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub context: Arc<RunContext>,
    pub fields: RunFields,
    /// The run's status when it was assigned: queued, running (its holder fell silent, or an interrupt was answered) or
    /// waiting (for runs that have all ended).
    pub status: Status,
    pub last_seq: Seq,
    pub lease_id: Uuid,
    pub lease_until: DateTime<Utc>,
    /// Taken before the lease was requested.
    pub asked_at: Instant,
    /// 1 for the first assignment; never the same twice for a run.
    pub attempt: i32,
}

/// A handle on the dispatch. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dispatch {
    timeline: Timeline,
    settings: Settings,
    wakeup: Arc<watch::Sender<()>>,
    keeper: LeaseRenewer,
    /// How long the last claim took, in microseconds.
    claim_micros: Arc<AtomicU64>,
    /// Which agents this process serves, and when that was last recorded.
    served: Arc<Mutex<HashMap<Name, DateTime<Utc>>>>,
    began_at: DateTime<Utc>,
}

impl Dispatch {
    /// Starts the wake-ups, the renewal of leases and the sweep under `supervisor`.
    pub fn start(timeline: Timeline, settings: Settings, supervisor: &Supervisor) -> Self {
        let began_at = timeline.clock().now();
        let (wakeup, keeper, claim_micros, served) =
            (Arc::default(), LeaseRenewer::default(), Arc::default(), Arc::default());
        let dispatch = Self { timeline, settings, wakeup, keeper, claim_micros, served, began_at };
        let of = || (dispatch.clone(), supervisor.stop().clone());
        let (ring, keep, sweep) = (of(), of(), of());
        supervisor.keep("jobs, wake-ups", move || ring.0.clone().ring(ring.1.clone()));
        supervisor.keep("jobs, leases", move || keep.0.clone().keep(keep.1.clone()));
        supervisor.keep("jobs, sweep", move || sweep.0.clone().sweep(sweep.1.clone()));
        dispatch
    }

    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// How long a holder may be silent.
    pub fn lease(&self) -> Duration {
        self.settings.lease
    }

    /// Makes a queued run a job; `false` if it already is one, has no agent or has been started.
    ///
    /// Runs created with `start: false` and an agent are jobs without this call.
    pub async fn enqueue(&self, context: &RunContext) -> Result<bool, store::Error> {
        let done = self.timeline.store().jobs().enqueue(&context.owner_id, context.run_id).await?;
        self.wake();
        Ok(done)
    }

    /// Assigns up to `most` jobs of these agents to a claimer. Owners take turns, and each owner's oldest job is first.
    ///
    /// Runs of one thread are executed one after the other. Of any number of claimers, in any number of processes,
    /// exactly one gets a job.
    pub async fn claim(&self, who: &Claimer, agents: &[Name], most: usize) -> Result<Vec<Assignment>, store::Error> {
        let most = most.min(JOB_CLAIM_MAX);
        self.note_served(agents).await?;
        if most == 0 || agents.is_empty() {
            return Ok(Vec::new());
        }
        let leases: Vec<Uuid> = (0..most).map(|_| self.timeline.ids().uuid()).collect();
        let asked_at = Instant::now();
        let jobs = self.timeline.store().jobs().claim(who, agents, &leases, self.term()).await?;
        self.claim_micros.store(u64::try_from(asked_at.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        for job in &jobs {
            let kind = if job.attempt == 1 { "first" } else { "again" };
            metrics::counter!("runreel_jobs_claimed_total", "assignment" => kind).increment(1);
            if job.has_lapsed {
                self.timeline.end_texts(job.run.context.run_id);
                tracing::info!(run_id = %job.run.context.run_id, attempt = job.attempt, "job taken over after its lease expired");
            }
        }
        Ok(jobs.into_iter().map(|job| Assignment::of(job, asked_at)).collect())
    }

    /// Records from time to time that these agents are served.
    async fn note_served(&self, agents: &[Name]) -> Result<(), store::Error> {
        let due: Vec<Name> = {
            let now = self.timeline.clock().now();
            let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
            served.retain(|_, noted| (now - *noted).num_milliseconds() < JOB_SERVED_NOTE_MS);
            let due: Vec<Name> = agents.iter().filter(|agent| !served.contains_key(*agent)).cloned().collect();
            served.extend(due.iter().map(|agent| (agent.clone(), now)));
            due
        };
        if due.is_empty() {
            Ok(())
        } else {
            self.timeline.store().jobs().note_served(&due, self.timeline.clock().held()).await
        }
    }

    /// Assigns the live leases of a session to the holder that resumes it. Lease ids are new, attempts are not.
    pub async fn adopt(&self, who: &Claimer, most: usize) -> Result<Vec<Assignment>, store::Error> {
        let fresh: Vec<Uuid> = (0..most).map(|_| self.timeline.ids().uuid()).collect();
        let asked_at = Instant::now();
        let leased = self.timeline.store().jobs().adopt(who, &fresh, self.term()).await?;
        Ok(leased.into_iter().map(|job| Assignment::of(job, asked_at)).collect())
    }

    /// Renews leases; returns those that are lost. An expired lease is lost even if the job has no new holder yet.
    pub async fn renew(&self, leases: &[Uuid]) -> Result<Vec<Uuid>, store::Error> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let renewed = self.timeline.store().jobs().renew(leases, self.term()).await?;
        Ok(leases.iter().filter(|lease| !renewed.contains(lease)).copied().collect())
    }

    /// Releases a job without spending an attempt: its run waits or is interrupted, or its holder leaves.
    ///
    /// `false` if the lease is no longer that holder's.
    pub async fn release(&self, lease: Uuid) -> Result<bool, store::Error> {
        let done = self.timeline.store().jobs().release(lease).await?;
        self.wake();
        Ok(done)
    }

    /// As [`Dispatch::release`], for a job that no holder can begin now: it wakes no waiter.
    pub async fn put_off(&self, lease: Uuid) -> Result<bool, store::Error> {
        self.timeline.store().jobs().release(lease).await
    }

    /// Removes the job of a run that has ended; `false`, without effect, if it has not.
    pub async fn finish(&self, lease: Uuid) -> Result<bool, store::Error> {
        self.timeline.store().jobs().finish(lease).await
    }

    /// The state of held jobs: whether the lease is still the holder's, and the status of the run.
    pub async fn standings(&self, held: &[(RunId, Uuid)]) -> Result<Vec<JobState>, store::Error> {
        if held.is_empty() { Ok(Vec::new()) } else { self.timeline.store().jobs().states(held).await }
    }

    /// What a claimer waits on between two claims.
    pub fn wakeup(&self) -> Wakeup {
        let poll = self.settings.poll;
        Wakeup { woken: self.wakeup.subscribe(), poll, due: Instant::now() + poll }
    }

    /// Wakes every waiter to check for work.
    pub fn wake(&self) {
        self.wakeup.send_replace(());
    }

    fn term(&self) -> LeaseTerm {
        let lease_ms = i64::try_from(self.settings.lease.as_millis()).unwrap_or(i64::MAX);
        LeaseTerm { now: self.timeline.clock().held(), lease_ms }
    }

    /// Wakes the waiters when the status of a run may have changed, here or in another process, paced by how long a
    /// claim takes.
    async fn ring(self, stop: CancellationToken) {
        let mut run_changes = self.timeline.run_changes();
        let work = async {
            while run_changes.changed().await.is_ok() {
                self.wake();
                let took = Duration::from_micros(self.claim_micros.load(Ordering::Relaxed));
                let (least, most) = JOB_WAKE_MS;
                tokio::time::sleep((took * 4).clamp(Duration::from_millis(least), Duration::from_millis(most))).await;
            }
        };
        stop.run_until_cancelled(work).await;
    }
}

impl Assignment {
    fn of(leased: Leased, asked_at: Instant) -> Self {
        let Leased { run, lease_id, attempt, lease_until, .. } = leased;
        Self {
            context: Arc::new(run.context),
            fields: run.fields,
            status: run.head.status,
            last_seq: run.head.last_seq,
            lease_id,
            lease_until,
            asked_at,
            attempt,
        }
    }
}

/// Wakes its holder when there may be work. A wake-up between a claim and the wait for it is not lost.
#[derive(Debug)]
pub struct Wakeup {
    woken: watch::Receiver<()>,
    poll: Duration,
    /// When it resolves without a wake-up. Cancelling a wait and starting another does not postpone it.
    due: Instant,
}

impl Wakeup {
    /// Resolves when something may have become claimable or a held job may have changed, and periodically.
    pub async fn woken(&mut self) {
        // The channel cannot close while the dispatch lives; if it does, the poll remains.
        if let Ok(Err(_)) = tokio::time::timeout_at(self.due, self.woken.changed()).await {
            tokio::time::sleep_until(self.due).await;
        }
        self.due = Instant::now() + self.poll;
    }
}
