//! Holding leases inside this process: they are renewed, and a holder is notified when the work is no longer its own.
//!
//! One task renews all leases of the process in one statement and checks all their runs in another, so the cost does
//! not grow with the number of jobs in progress.
//!
//! Invariant kept here: a holder stops before its lease lapses in the database. The age of a lease is measured here,
//! from before the request was sent, so neither a changed clock nor an unreachable database leads to two holders of one
//! job.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Assignment, Dispatch};
use crate::{
    domain::{id::RunId, run::Status},
    store,
};

/// Why a holder must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The run has ended: it was cancelled, or another party ended it.
    Ended(Status),
    /// The lease belongs to another holder, or it expired before it could be renewed.
    Lost,
}

#[derive(Clone, Debug)]
struct RenewedLease {
    run_id: RunId,
    /// When the lease is abandoned, unless it is renewed.
    until: Instant,
    stop: CancellationToken,
    fate: Arc<OnceLock<StopReason>>,
}

/// The leases that this process renews.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseRenewer(Arc<Leases>);

#[derive(Debug, Default)]
struct Leases {
    kept: Mutex<HashMap<Uuid, RenewedLease>>,
    /// Signals a new lease.
    more: Notify,
}

impl LeaseRenewer {
    fn kept(&self) -> MutexGuard<'_, HashMap<Uuid, RenewedLease>> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, lease: Uuid, fate: StopReason) {
        if let Some(kept) = self.kept().get(&lease) {
            kept.end(fate);
        }
    }

    fn renewed(&self, leases: &[Uuid], until: Instant) {
        let mut held = self.kept();
        for lease in leases {
            if let Some(kept) = held.get_mut(lease) {
                kept.until = until;
            }
        }
    }

    /// Abandons leases that could not be renewed in time; returns when to check again.
    fn give_up(&self, now: Instant) -> Option<Instant> {
        let held = self.kept();
        held.values().filter(|kept| kept.until <= now).for_each(|kept| kept.end(StopReason::Lost));
        held.values().map(|kept| kept.until).filter(|until| *until > now).min()
    }
}

impl RenewedLease {
    fn end(&self, fate: StopReason) {
        // The first reason is kept.
        _ = self.fate.set(fate);
        self.stop.cancel();
    }
}

/// A lease that is renewed until this is dropped. Dropping it neither releases nor finishes the job.
#[derive(Debug)]
pub struct LeaseGuard {
    lease_id: Uuid,
    kept: RenewedLease,
    keeper: LeaseRenewer,
}

impl LeaseGuard {
    /// Cancelled when the holder must stop; pass it to the work.
    pub fn stop(&self) -> &CancellationToken {
        &self.kept.stop
    }

    /// Why the holder must stop, once it must.
    pub fn fate(&self) -> Option<StopReason> {
        self.kept.fate.get().copied()
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.keeper.kept().remove(&self.lease_id);
    }
}

impl Dispatch {
    /// Renews the lease of an assignment and watches its run, until the guard is dropped.
    pub fn hold(&self, assignment: &Assignment) -> LeaseGuard {
        let kept = RenewedLease {
            run_id: assignment.context.run_id,
            until: assignment.asked_at + self.safe(),
            stop: CancellationToken::new(),
            fate: Arc::default(),
        };
        self.keeper.kept().insert(assignment.lease_id, kept.clone());
        // A change between the claim and now causes no further wake-up.
        self.keeper.0.more.notify_one();
        LeaseGuard { lease_id: assignment.lease_id, kept, keeper: self.keeper.clone() }
    }

    /// How long after its request a lease is safely held: a holder needs time to stop.
    fn safe(&self) -> Duration {
        self.settings.lease.mul_f64(0.9)
    }

    /// Renews and checks until `stop`.
    pub(super) async fn keep(self, stop: CancellationToken) {
        let work = async {
            let (mut wakeup, mut renewed) = (self.wakeup(), Instant::now());
            loop {
                let due = renewed + self.settings.lease / 3;
                tokio::select! {
                    () = wakeup.woken() => {}
                    () = self.keeper.0.more.notified() => {}
                    () = tokio::time::sleep_until(due) => {}
                }
                let renewing = Instant::now() >= due;
                if renewing {
                    renewed = Instant::now();
                }
                if let Err(error) = Box::pin(self.keep_once(renewing)).await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "lease renewal failed");
                }
            }
        };
        let watch = async {
            loop {
                // A lease acquired meanwhile is also checked within a third of its term.
                let next_check = Instant::now() + self.settings.lease / 3;
                let due = self.keeper.give_up(Instant::now()).map_or(next_check, |until| until.min(next_check));
                tokio::time::sleep_until(due).await;
            }
        };
        let both = async { tokio::join!(work, watch) };
        stop.run_until_cancelled(both).await;
    }

    /// One check of everything held here.
    pub async fn keep_once(&self, renewing: bool) -> Result<(), store::Error> {
        let held: Vec<(RunId, Uuid)> = self.keeper.kept().iter().map(|(lease, kept)| (kept.run_id, *lease)).collect();
        if held.is_empty() {
            return Ok(());
        }
        let leases: Vec<Uuid> = held.iter().map(|(_, lease)| *lease).collect();
        let lost = if renewing {
            let until = Instant::now() + self.safe();
            let lost = self.renew(&leases).await?;
            let renewed: Vec<Uuid> = leases.iter().filter(|lease| !lost.contains(lease)).copied().collect();
            self.keeper.renewed(&renewed, until);
            lost
        } else {
            Vec::new()
        };
        for standing in self.standings(&held).await? {
            let ended = standing.status.filter(|status| status.is_terminal());
            match (ended, standing.held) {
                (Some(status), _) => self.keeper.end(standing.lease_id, StopReason::Ended(status)),
                (None, false) => self.keeper.end(standing.lease_id, StopReason::Lost),
                (None, true) => {}
            }
        }
        // After the ended runs: their leases are lost too, and the first reason is kept.
        for lease in lost {
            self.keeper.end(lease, StopReason::Lost);
        }
        Ok(())
    }
}
