//! The runtime: takes jobs whose agents this process knows and carries them out, each on the engine.
//!
//! It composes and decides nothing about who somebody is or which session a message belongs to: that was settled before
//! the run was made. Invariants kept here: work happens under a lease that is renewed, and stops when it is lost; a run
//! that waits (for people, for workers) holds no place and no lease.
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

/// Carries out jobs in this process. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    pub dispatch: Dispatch,
    pub threads: Threads,
    pub agents: Arc<dyn AgentResolver>,
    pub stopwatch: Stopwatch,
    pub name: Name,
    /// Jobs under way at a time; runs that wait do not count.
    pub places: usize,
    /// Of these, how many one owner's jobs may take.
    pub own_places: usize,
}

impl Runtime {
    /// Takes jobs until `stop`, then gives back what is under way so that another process goes on at once.
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
            // There may be more that can be taken: somebody else may have been taking the first ones.
            let again = !claimed.is_empty() && claimed.len() < places.available_permits();
            for assignment in claimed {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { break };
                let (runtime, stop) = (self.clone(), stop.clone());
                tasks.spawn(async move {
                    runtime.execute(&assignment, &stop).await;
                    drop(place);
                    // The place is free again: somebody may have waited for it.
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

    /// Brings one assignment as far as it goes, and says so to the dispatch.
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
            (Done::Suspended | Done::Stopped, None) => self.dispatch.release(lease).await,
        };
        if let Err(error) = settled {
            // The lease runs out by itself, and the sweep knows the rest.
            tracing::warn!(error = &error as &dyn std::error::Error, "job not released");
        }
    }

    fn execution(&self, assignment: &Assignment) -> Execution {
        let (timeline, context) = (self.dispatch.timeline(), Arc::clone(&assignment.context));
        Execution {
            host: Arc::new(LocalHost::new(timeline.clone(), self.threads.clone(), context)),
            input: assignment.input.clone(),
            status: Some(assignment.status),
            attempt: assignment.attempt,
            agents: Arc::clone(&self.agents),
            ids: timeline.ids().clone(),
            stopwatch: Arc::clone(&self.stopwatch),
        }
    }
}
