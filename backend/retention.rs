//! Removal of runs by age.
//!
//! Invariants: a tree of runs is removed as a whole, once all its runs have ended and its time to live has passed; what
//! has not ended is never touched. Several servers on one database may sweep at once.
//!
//! Start reading at [`Retention::sweep`].

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

use crate::{
    domain::{
        id::RunId,
        limits::{EXPIRY_STEP_ROWS, EXPIRY_STEPS, EXPIRY_SWEEP_MS, MONTH_AGE_HOURS, MONTH_SETTLED_S},
        retention::Policy,
    },
    store::{
        self, Store,
        expiry::{EndPlace, EndedTree, EndedTrees, Remover},
        months::{Month, MonthDrop, MonthPage},
    },
    supervise::Supervisor,
    threads::Threads,
    timeline::Timeline,
};

/// A handle on the removal of runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Retention {
    timeline: Timeline,
    threads: Threads,
    policy: Arc<Policy>,
}

/// The moment before which a run must have ended to be due; `None` if nothing is ever due.
async fn horizon(store: &Store, policy: &Policy, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, store::Error> {
    let least = policy.least().into_iter().chain(store.least_run_ttl().await?).min();
    Ok(least.and_then(|least| now.checked_sub_signed(TimeDelta::try_seconds(least)?)))
}

/// The trees that are due among the next ended runs, and where to continue; `None` at the end.
pub async fn due(
    store: &Store,
    policy: &Policy,
    now: DateTime<Utc>,
    after: Option<EndPlace>,
) -> Result<EndedTrees, store::Error> {
    let Some(before) = horizon(store, policy, now).await? else { return Ok(EndedTrees::default()) };
    let mut found = store.ended_trees(after, before, EXPIRY_STEP_ROWS).await?;
    found.trees.retain(|tree| policy.is_due(&tree.age, now));
    Ok(found)
}

impl Retention {
    pub fn new(timeline: Timeline, threads: Threads, policy: Policy) -> Self {
        Self { timeline, threads, policy: Arc::new(policy) }
    }

    /// How long runs stay.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Drops the months in which everything is due, then removes the other trees that are due, from a place on; returns
    /// where the next sweep continues, `None` at the end.
    pub async fn sweep(&self, mut after: Option<EndPlace>) -> Result<Option<EndPlace>, store::Error> {
        // One time for the whole sweep: what becomes due meanwhile is left to the next one, which then finds its whole
        // month due.
        let now = self.threads.now();
        let mut remover = None;
        self.drop_months(&mut remover, now).await?;
        for _ in 0..EXPIRY_STEPS {
            let found = due(self.store(), &self.policy, now, after).await?;
            for tree in &found.trees {
                if let Err(error) = self.remove(&mut remover, tree).await {
                    // The others are still removed, on another connection.
                    remover = None;
                    metrics::counter!("runreel_retention_failures_total").increment(1);
                    let (root, error) = (tree.root, &error as &dyn std::error::Error);
                    tracing::warn!(%root, error, "a tree of runs that is due could not be removed; it is tried again");
                }
            }
            after = found.next;
            if after.is_none() {
                break;
            }
        }
        if let Some(remover) = remover {
            remover.close().await;
        }
        Ok(after)
    }

    fn store(&self) -> &Store {
        self.threads.store()
    }

    async fn drop_months(&self, remover: &mut Option<Remover>, now: DateTime<Utc>) -> Result<(), store::Error> {
        let Some(before) = horizon(self.store(), &self.policy, now).await? else { return Ok(()) };
        // A recent import may still be in progress.
        let before = before.min(now - TimeDelta::seconds(MONTH_SETTLED_S));
        let recent = now - TimeDelta::hours(MONTH_AGE_HOURS);
        for month in self.store().months_before(before.min(recent)).await? {
            if let Err(error) = self.drop_month(remover, &month, now, before).await {
                *remover = None;
                metrics::counter!("runreel_retention_failures_total").increment(1);
                let (month, error) = (&month.name, &error as &dyn std::error::Error);
                tracing::warn!(month, error, "a month of the log that is due could not be dropped; it is tried again");
            }
        }
        Ok(())
    }

    async fn drop_month(
        &self,
        remover: &mut Option<Remover>,
        month: &Month,
        now: DateTime<Utc>,
        before: DateTime<Utc>,
    ) -> Result<(), store::Error> {
        let first = self.store().trees_of_month(month, None, EXPIRY_STEP_ROWS).await?;
        let is_due = self.is_due(&first, now)
            && self.store().month_ended_before(month, before).await?
            && self.walk_month(month, now, None).await?
            && self.walk_month(month, now, Some(remover)).await?;
        if !is_due {
            return Ok(());
        }
        let began = Instant::now();
        let mut connection = self.connection(remover).await?;
        let dropped = connection.drop_month(self.store(), month, before).await?;
        *remover = Some(connection);
        let month = &month.name;
        match dropped {
            MonthDrop::Done { runs, events } => {
                metrics::counter!("runreel_retention_months_dropped_total").increment(1);
                count(runs, events);
                tracing::info!(month, runs, events, ms = began.elapsed().as_millis(), "a month dropped by age");
            }
            MonthDrop::Kept => {}
            MonthDrop::Busy => {
                metrics::counter!("runreel_retention_failures_total").increment(1);
                tracing::warn!(
                    month,
                    "a month of the log is in use all the time, by a dump perhaps: removed in pieces"
                );
            }
        }
        Ok(())
    }

    /// Whether all trees with runs in a month are due; with a connection, removes what is not dropped with the month:
    /// the threads of its runs, and trees that extend into another month.
    async fn walk_month(
        &self,
        month: &Month,
        now: DateTime<Utc>,
        mut remover: Option<&mut Option<Remover>>,
    ) -> Result<bool, store::Error> {
        let mut after = None;
        loop {
            let page = self.store().trees_of_month(month, after, EXPIRY_STEP_ROWS).await?;
            if !self.is_due(&page, now) {
                return Ok(false);
            }
            if let Some(remover) = &mut remover {
                for tree in page.trees.iter().filter(|tree| !month.holds(tree)) {
                    self.remove(remover, tree).await?;
                }
                for trees in page.trees.chunk_by(|one, next| one.owner == next.owner) {
                    let runs: Vec<RunId> = trees.iter().flat_map(|tree| tree.runs.iter().copied()).collect();
                    self.threads.forget_own(&trees[0].owner, &runs).await?;
                    self.timeline.forget(&runs);
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    fn is_due(&self, page: &MonthPage, now: DateTime<Utc>) -> bool {
        page.have_ended && page.trees.iter().all(|tree| self.policy.is_due(&tree.age, now))
    }

    async fn connection(&self, remover: &mut Option<Remover>) -> Result<Remover, store::Error> {
        match remover.take() {
            Some(connection) => Ok(connection),
            None => self.store().remover().await,
        }
    }

    async fn remove(&self, remover: &mut Option<Remover>, tree: &EndedTree) -> Result<(), store::Error> {
        let mut connection = self.connection(remover).await?;
        let events = connection.remove(tree).await?;
        *remover = Some(connection);
        if let Some(events) = events {
            self.timeline.forget(&tree.runs);
            if let Err(error) = self.threads.forget_own(&tree.owner, &tree.runs).await {
                let (root, error) = (tree.root, &error as &dyn std::error::Error);
                tracing::warn!(%root, error, "the threads of removed runs were not removed");
            }
            count(i64::try_from(tree.runs.len()).unwrap_or(0), events);
            tracing::debug!(root = %tree.root, runs = tree.runs.len(), events, "runs removed by age");
        }
        Ok(())
    }

    /// Sweeps as long as the supervisor's tasks run.
    pub fn start(&self, supervisor: &Supervisor) {
        let pause = Duration::from_millis(EXPIRY_SWEEP_MS);
        supervisor.every("retention", (pause, pause), self.clone(), |retention, after: &mut Option<EndPlace>| {
            Box::pin(async {
                *after = retention.sweep(*after).await?;
                Ok::<_, store::Error>(())
            })
        });
    }
}

/// Counts what was removed.
fn count(runs: i64, events: i64) {
    let number = |count: i64| u64::try_from(count).unwrap_or(0);
    metrics::counter!("runreel_retention_runs_removed_total").increment(number(runs));
    metrics::counter!("runreel_retention_events_removed_total").increment(number(events));
}
