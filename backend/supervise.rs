//! Tasks that live as long as the server does.
//!
//! Periodic work uses [`Supervisor::every`].
//!
//! A task that panics, or ends before it is stopped, is a bug, and the server survives it: the failure is logged and
//! counted, the task is restarted, and until it has run for a while [`Supervisor::failing`] names it, so that
//! readiness reports it.

use std::{
    collections::BTreeMap,
    error::Error,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::time::MissedTickBehavior;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Pause before a failed task is restarted.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a restarted task must run before it no longer counts as failing.
const PROOF: Duration = Duration::from_secs(2);

/// How long after the start parts begin that no request needs.
pub const LATE: Duration = Duration::from_secs(1);

/// Starts tasks and restarts them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Supervisor {
    tasks: TaskTracker,
    stop: CancellationToken,
    /// The number of failing tasks by name.
    failing: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl Supervisor {
    /// Supervises on these tasks until `stop`.
    pub fn new(tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self { tasks, stop, failing: Arc::default() }
    }

    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Cancelled when the tasks are to end.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// The name of a task that failed and has not run long enough since.
    pub fn failing(&self) -> Option<&'static str> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.first_key_value().map(|(name, _)| *name)
    }

    /// Runs the future of `begin` until `stop`, and begins again when it panics or ends before that.
    pub fn keep<F>(&self, name: &'static str, begin: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let supervisor = self.clone();
        self.tasks.spawn(async move {
            let mut proving = false;
            loop {
                let mut work = Box::pin(AssertUnwindSafe(async { begin().await }).catch_unwind());
                let mut ended = None;
                if proving {
                    ended = tokio::time::timeout(PROOF, &mut work).await.ok();
                    if ended.is_none() {
                        supervisor.count(name, false);
                        proving = false;
                    }
                }
                let ended = match ended {
                    Some(ended) => ended,
                    None => work.await,
                };
                if supervisor.stop.is_cancelled() {
                    return;
                }
                metrics::counter!("runreel_task_panics_total", "task" => name).increment(1);
                let how = if ended.is_ok() { "ended" } else { "panicked" };
                tracing::error!(task = name, how, "a task failed and is restarted; please report the log lines above");
                if !proving {
                    supervisor.count(name, true);
                    proving = true;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Runs a part until it is stopped.
    pub fn run<P, F>(&self, name: &'static str, part: P, run: fn(P, CancellationToken) -> F)
    where
        P: Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        self.keep(name, move || run(part.clone(), stop.clone()));
    }

    /// The same for a part that no request needs: it begins [`LATE`] after this.
    pub fn run_late<P, F>(&self, name: &'static str, part: P, run: fn(P, CancellationToken) -> F)
    where
        P: Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        self.keep(name, move || {
            let (part, stop) = (part.clone(), stop.clone());
            async move {
                if stop.run_until_cancelled(tokio::time::sleep(LATE)).await.is_some() {
                    run(part, stop).await;
                }
            }
        });
    }

    /// Runs `work` once a period until the supervisor stops, first after `first`. Errors are logged. Work that panics
    /// is retried soon, with new state, and counts as failing until it ends without a panic. A late turn delays those
    /// after it.
    pub fn every<P, S, T, E>(
        &self,
        name: &'static str,
        (first, period): (Duration, Duration),
        part: P,
        work: for<'a> fn(&'a P, &'a mut S) -> BoxFuture<'a, Result<T, E>>,
    ) where
        P: Send + Sync + 'static,
        S: Default + Send + 'static,
        T: Send + 'static,
        E: Error + Send + 'static,
    {
        let supervisor = self.clone();
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(async move {
            let mut turns = tokio::time::interval_at(tokio::time::Instant::now() + first, period);
            turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let (mut kept, mut fails) = (S::default(), false);
            loop {
                turns.tick().await;
                let done = AssertUnwindSafe(async { work(&part, &mut kept).await }).catch_unwind().await;
                match &done {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => {
                        tracing::warn!(task = name, error = error as &dyn Error, "a periodic task was not done");
                    }
                    Err(_) => {
                        metrics::counter!("runreel_task_panics_total", "task" => name).increment(1);
                        tracing::error!(task = name, "a periodic task panicked; please report the log lines above");
                        kept = S::default();
                        turns.reset_after(PAUSE.min(period));
                    }
                }
                if fails != done.is_err() {
                    fails = done.is_err();
                    supervisor.count(name, fails);
                }
            }
        }));
    }

    fn count(&self, name: &'static str, fails: bool) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failing.entry(name).or_default();
        *count = if fails { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            failing.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_fails_begins_again_and_counts_as_failing_until_it_has_proved_itself() {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let supervisor = Supervisor::new(tasks.clone(), stop.clone());
        let begun = Arc::new(AtomicUsize::new(0));
        supervisor.keep("clumsy", {
            let (begun, stop) = (Arc::clone(&begun), stop.clone());
            move || {
                let (nth, stop) = (begun.fetch_add(1, Ordering::SeqCst), stop.clone());
                // Of the first three, one panics before there is a future, one in the future, and one ends.
                assert!(nth > 0, "the first fails");
                async move {
                    assert!(nth > 1, "the second fails");
                    if nth > 2 {
                        stop.cancelled().await;
                    }
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(supervisor.failing(), Some("clumsy"));
        tokio::time::sleep(3 * PAUSE + PROOF / 2).await;
        assert_eq!((begun.load(Ordering::SeqCst), supervisor.failing()), (4, Some("clumsy")));
        tokio::time::sleep(PROOF).await;
        assert_eq!(supervisor.failing(), None);
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        assert_eq!(begun.load(Ordering::SeqCst), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn periodic_work_goes_on_after_an_error_and_counts_as_failing_from_a_panic_until_it_is_done() {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let supervisor = Supervisor::new(tasks.clone(), stop.clone());
        let turns = Arc::new(Mutex::new(Vec::new()));
        let period = Duration::from_mins(1);
        supervisor.every("clumsy", (period, period), Arc::clone(&turns), |turns, kept: &mut usize| {
            Box::pin(async {
                *kept += 1;
                let turn = {
                    let mut turns = turns.lock().unwrap();
                    turns.push(*kept);
                    turns.len()
                };
                assert!(turn != 2, "the second fails");
                if turn == 1 { Err(std::io::Error::other("the first has an error")) } else { Ok(()) }
            })
        });
        let mut seen = Vec::new();
        // Just after each turn: after a panic the next one follows soon, with new state.
        for pause in [period + Duration::from_millis(1), period, PAUSE, period] {
            tokio::time::sleep(pause).await;
            seen.push((turns.lock().unwrap().clone(), supervisor.failing().is_some()));
        }
        let expected = [(vec![1], false), (vec![1, 2], true), (vec![1, 2, 1], false), (vec![1, 2, 1, 2], false)];
        assert_eq!(seen, expected);
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}
