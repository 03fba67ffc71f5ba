//! The runtime: claims jobs whose agents this process knows and executes them, each on the engine.
//!
//! It makes no decision about identity or sessions: those were settled before the run was created. Invariants kept
//! here: work happens under a lease that is renewed, and stops when it is lost; a run that waits (for people, for
//! workers) holds no slot and no lease.
//!
//! Start reading at [`Runtime::run`], then [`execution`](super::execution).

mod host;

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::host::LocalHost;
use super::{
    agent::AgentResolver,
    execution::{Done, Execution},
};
use crate::{
    clock::Stopwatch,
    dispatch::{Assignment, Dispatch, renew::StopReason},
    domain::{id::Name, job::Claimer},
    threads::Threads,
};

/// Executes jobs in this process. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    pub dispatch: Dispatch,
    pub threads: Threads,
    pub agents: Arc<dyn AgentResolver>,
    pub stopwatch: Stopwatch,
    pub name: Name,
    /// Maximum jobs in progress; runs that wait do not count.
    pub places: usize,
    /// Maximum of these for one owner.
    pub own_places: usize,
}

impl Runtime {
    /// Claims jobs until `stop`, then releases those in progress so that another process continues at once.
    pub async fn run(self, stop: CancellationToken) {
        let agents = self.agents.names();
        let session = self.dispatch.timeline().ids().uuid();
        let who = Claimer { name: self.name.clone(), session, owner: None, own_max: self.own_places as i64 };
        let (places, tasks) = (Arc::new(Semaphore::new(self.places)), TaskTracker::new());
        let mut wakeup = self.dispatch.wakeup();
        while !stop.is_cancelled() {
            let claimed = match self.dispatch.claim(&who, &agents, places.available_permits()).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "claiming jobs failed");
                    Vec::new()
                }
            };
            // There may be more to claim: another process may have been claiming the first ones.
            let again = !claimed.is_empty() && claimed.len() < places.available_permits();
            for assignment in claimed {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { break };
                let (runtime, stop) = (self.clone(), stop.clone());
                tasks.spawn(async move {
                    runtime.execute(&assignment, &stop).await;
                    drop(place);
                    // The slot is free again, and a job may be waiting for it.
                    runtime.dispatch.wake();
                });
            }
            if !again {
                stop.run_until_cancelled(wakeup.woken()).await;
            }
        }
        tasks.close();
        tasks.wait().await;
        self.agents.close().await;
    }

    /// Executes one assignment as far as it goes, and reports the outcome to the dispatch.
    pub async fn execute(&self, assignment: &Assignment, stop: &CancellationToken) {
        let (execution, hold) = (self.execution(assignment), self.dispatch.hold(assignment));
        let cancel = stop.child_token();
        let watch = async {
            hold.stop().cancelled().await;
            cancel.cancel();
            std::future::pending::<()>().await;
        };
        let done = tokio::select! {
            done = Box::pin(execution.run(&cancel)) => done,
            () = watch => Done::Stopped,
        };
        let lease = assignment.lease_id;
        let settled = match (done, hold.fate()) {
            (Done::Ended, _) | (_, Some(StopReason::Ended(_))) => {
                execution.forget().await;
                self.dispatch.finish(lease).await
            }
            (_, Some(StopReason::Lost)) => Ok(false),
            (Done::Suspended, None) => self.dispatch.release(lease).await,
            (Done::Stopped, None) => {
                // The next holder writes its open texts again from the beginning.
                self.dispatch.timeline().end_texts(assignment.context.run_id);
                self.dispatch.release(lease).await
            }
        };
        if let Err(error) = settled {
            // The lease expires, and the sweep releases the job.
            tracing::warn!(error = &error as &dyn std::error::Error, "job not released");
        }
    }

    fn execution(&self, assignment: &Assignment) -> Execution {
        let (timeline, context) = (self.dispatch.timeline(), Arc::clone(&assignment.context));
        Execution {
            host: Arc::new(LocalHost::new(timeline.clone(), self.threads.clone(), context)),
            input: assignment.fields.input.clone(),
            status: Some(assignment.status),
            attempt: assignment.attempt,
            agents: Arc::clone(&self.agents),
            ids: timeline.ids().clone(),
            stopwatch: Arc::clone(&self.stopwatch),
        }
    }
}
