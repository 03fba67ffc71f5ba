//! Jobs: who carries out which run, in whichever process.
//!
//! A run becomes a job in the transaction that creates it (`start: false` and an agent). [`Dispatch::claim`] gives it to
//! a holder for the length of a lease, which the holder renews; a lease that lapses makes the job anybody's again, until
//! three holders have fallen silent and the run fails with `lease_lost`.
//!
//! Invariants kept here: a job has one holder at a time, and the database alone says who; whether a job may be taken
//! follows from the status of its run and from nothing else; a holder that gives a job back spends no attempt. A wake-up is
//! only a reason to look, and a poll looks without one, so a lost wake-up costs a moment and never a job.
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
        json::Json,
        limits::{JOB_CLAIM_MAX, JOB_SERVED_NOTE_MS, JOB_WAKE_MS},
        run::Status,
    },
    store::{
        self,
        jobs::{JobState, LeaseTerm, Leased},
    },
    supervise::Supervisor,
    timeline::Timeline,
};

/// How jobs are given away.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a holder may be silent.
    pub lease: Duration,
    /// How often jobs are polled for without a wake-up.
    pub poll: Duration,
}

/// A run that was given to a holder.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub context: Arc<RunContext>,
    pub title: Option<String>,
    pub input: Option<Json>,
    pub metadata: Json,
    pub tags: Vec<String>,
    /// What the run was when it was given away: queued, running (its holder fell silent, or an interrupt was answered)
    /// or waiting (for runs that have all ended).
    pub status: Status,
    pub last_seq: Seq,
    pub lease_id: Uuid,
    pub lease_until: DateTime<Utc>,
    /// Before the lease was asked for.
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
    /// How long the last look for jobs took, in microseconds.
    looked: Arc<AtomicU64>,
    /// Which agents this process serves, and when it said so last.
    served: Arc<Mutex<HashMap<Name, DateTime<Utc>>>>,
    began_at: DateTime<Utc>,
}

impl Dispatch {
    /// Starts the wake-ups, the renewal of leases and the sweep under `supervisor`.
    pub fn start(timeline: Timeline, settings: Settings, supervisor: &Supervisor) -> Self {
        let began_at = timeline.clock().now();
        let (wakeup, keeper, looked, served) =
            (Arc::default(), LeaseRenewer::default(), Arc::default(), Arc::default());
        let dispatch = Self { timeline, settings, wakeup, keeper, looked, served, began_at };
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

    /// Makes a queued run a job; `false` when it is one already, has no agent or has been started.
    ///
    /// Runs that are created with `start: false` and an agent are jobs by that alone.
    pub async fn enqueue(&self, context: &RunContext) -> Result<bool, store::Error> {
        let done = self.timeline.store().jobs().enqueue(&context.owner_id, context.run_id).await?;
        self.wake();
        Ok(done)
    }

    /// Gives up to `most` jobs of these agents to a claimer. Owners take turns, and of one owner's the oldest is first.
    ///
    /// Runs of one thread come one after the other. Of any number of claimers, in any number of processes, exactly one
    /// gets a job.
    pub async fn claim(&self, who: &Claimer, agents: &[Name], most: usize) -> Result<Vec<Assignment>, store::Error> {
        let most = most.min(JOB_CLAIM_MAX);
        self.note_served(agents).await?;
        if most == 0 || agents.is_empty() {
            return Ok(Vec::new());
        }
        let leases: Vec<Uuid> = (0..most).map(|_| self.timeline.ids().uuid()).collect();
        let asked_at = Instant::now();
        let jobs = self.timeline.store().jobs().claim(who, agents, &leases, self.term()).await?;
        self.looked.store(u64::try_from(asked_at.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        for job in &jobs {
            let kind = if job.attempt == 1 { "first" } else { "again" };
            metrics::counter!("runreel_jobs_claimed_total", "assignment" => kind).increment(1);
            if job.lapses > 0 {
                tracing::info!(run_id = %job.run.context.run_id, attempt = job.attempt, "job taken over after its lease expired");
            }
        }
        Ok(jobs.into_iter().map(|job| Assignment::of(job, asked_at)).collect())
    }

    /// Notes now and then that these agents are served.
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

    /// Gives the live leases of a session to whoever comes back to it. Their ids are new, the attempts are not.
    pub async fn adopt(&self, who: &Claimer, most: usize) -> Result<Vec<Assignment>, store::Error> {
        let fresh: Vec<Uuid> = (0..most).map(|_| self.timeline.ids().uuid()).collect();
        let asked_at = Instant::now();
        let leased = self.timeline.store().jobs().adopt(who, &fresh, self.term()).await?;
        Ok(leased.into_iter().map(|job| Assignment::of(job, asked_at)).collect())
    }

    /// Renews leases; gives those that are lost. A lease whose time is over is lost even if nobody has the job yet.
    pub async fn renew(&self, leases: &[Uuid]) -> Result<Vec<Uuid>, store::Error> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let renewed = self.timeline.store().jobs().renew(leases, self.term()).await?;
        Ok(leases.iter().filter(|lease| !renewed.contains(lease)).copied().collect())
    }

    /// Gives a job back without spending an attempt: its run waits or is interrupted, or its holder leaves.
    ///
    /// `false` when the lease is not that holder's any more.
    pub async fn release(&self, lease: Uuid) -> Result<bool, store::Error> {
        let done = self.timeline.store().jobs().release(lease).await?;
        self.wake();
        Ok(done)
    }

    /// Says that the run has ended: the job goes. `false`, and nothing happens, when it has not.
    pub async fn finish(&self, lease: Uuid) -> Result<bool, store::Error> {
        self.timeline.store().jobs().finish(lease).await
    }

    /// Where held jobs stand: whether the lease still is the holder's, and the status of the run.
    pub async fn standings(&self, held: &[(RunId, Uuid)]) -> Result<Vec<JobState>, store::Error> {
        if held.is_empty() { Ok(Vec::new()) } else { self.timeline.store().jobs().states(held).await }
    }

    /// Something to wait with between two claims.
    pub fn wakeup(&self) -> Wakeup {
        let poll = self.settings.poll;
        Wakeup { woken: self.wakeup.subscribe(), poll, due: Instant::now() + poll }
    }

    /// Tells everybody who waits to look.
    pub fn wake(&self) {
        self.wakeup.send_replace(());
    }

    fn term(&self) -> LeaseTerm {
        let lease_ms = i64::try_from(self.settings.lease.as_millis()).unwrap_or(i64::MAX);
        LeaseTerm { now: self.timeline.clock().held(), lease_ms }
    }

    /// Rings whenever the life of a run may have changed, here or in another process, but leaves most of the time to
    /// others.
    async fn ring(self, stop: CancellationToken) {
        let mut run_changes = self.timeline.run_changes();
        let work = async {
            while run_changes.changed().await.is_ok() {
                self.wake();
                let looked = Duration::from_micros(self.looked.load(Ordering::Relaxed));
                let (least, most) = JOB_WAKE_MS;
                tokio::time::sleep((looked * 4).clamp(Duration::from_millis(least), Duration::from_millis(most))).await;
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
            title: run.title,
            input: run.input,
            metadata: run.metadata,
            tags: run.tags,
            status: run.head.status,
            last_seq: run.head.last_seq,
            lease_id,
            lease_until,
            asked_at,
            attempt,
        }
    }
}

/// Rings when there may be work. One that rings between a claim and the wait for it is heard all the same.
#[derive(Debug)]
pub struct Wakeup {
    woken: watch::Receiver<()>,
    poll: Duration,
    /// When it rings without a reason. Whoever stops waiting and begins again does not put it off.
    due: Instant,
}

impl Wakeup {
    /// Resolves when something may have become claimable, or a held job may have changed, and now and then without
    /// that.
    pub async fn woken(&mut self) {
        // It cannot close while the dispatch lives; if it does, the poll remains.
        if let Ok(Err(_)) = tokio::time::timeout_at(self.due, self.woken.changed()).await {
            tokio::time::sleep_until(self.due).await;
        }
        self.due = Instant::now() + self.poll;
    }
}
