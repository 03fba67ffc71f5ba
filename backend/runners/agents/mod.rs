//! Agents as an executor: a runner executes what a server would, on a machine of its own.
//!
//! Events go over the runner's socket; the run's state, its answers and the runs below it over the HTTP API of the same
//! server, with the same token. The checkpoints are those of the server's own runtime, so each can continue what the
//! other began. What the agents are made of (models, their keys, tools) stays on this machine.
//!
//! Invariants kept here: a request is retried until its answer is known, and a retry after a lost answer changes
//! nothing; only a refusal of the request itself fails a run.
//!
//! Start reading at [`Agents`], then [`execution`](crate::agents::execution) and [`RemoteHost`].

mod answers;
mod bodies;
mod host;

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use serde_json::json;

pub use self::host::RemoteHost;
use super::client::{Executor, Outlet, Work};
use crate::{
    agents::{
        agent::AgentResolver,
        execution::{Done, Execution},
    },
    client::Client,
    clock::{IdSource, Stopwatch},
    domain::{
        event::{EventKind, NewEvent},
        json::Json,
        run::Status,
    },
};

/// Executes runs with a process's agents.
///
/// Pass it to a [`Runner`](super::client::Runner) whose settings name the agents: `agents.names()`, or some of them.
#[derive(Clone)]
pub struct Agents {
    agents: Arc<dyn AgentResolver>,
    client: Client,
    ids: IdSource,
    stopwatch: Stopwatch,
}

impl Agents {
    /// `client` uses the runner's own server and the runner's own token, which needs the scopes `read` and `emit`.
    pub fn new(agents: Arc<dyn AgentResolver>, client: Client, ids: IdSource, stopwatch: Stopwatch) -> Self {
        Self { agents, client, ids, stopwatch }
    }

    fn execution(&self, work: &Work) -> Execution {
        let (client, context) = (self.client.clone(), Arc::clone(&work.context));
        Execution {
            status: None,
            host: Arc::new(RemoteHost::new(client, context, work.outlet.clone())),
            input: work.assign.input.clone(),
            attempt: work.assign.context.attempt,
            agents: Arc::clone(&self.agents),
            ids: self.ids.clone(),
            stopwatch: Arc::clone(&self.stopwatch),
        }
    }
}

impl Executor for Agents {
    fn execute(&self, work: Work) -> BoxFuture<'static, ()> {
        let execution = self.execution(&work);
        Box::pin(async move {
            let running = AssertUnwindSafe(execution.run(&work.cancel)).catch_unwind();
            let done = match work.cancel.run_until_cancelled(running).await {
                Some(Ok(Done::Stopped)) if !work.cancel.is_cancelled() => {
                    broken(&work.outlet, "the run could not continue").await
                }
                Some(Ok(done)) => done,
                Some(Err(_)) => broken(&work.outlet, "the agent panicked").await,
                None => Done::Stopped,
            };
            if done == Done::Ended || (done == Done::Stopped && has_ended(&execution).await) {
                execution.forget().await;
            }
        })
    }
}

/// Fails a run that cannot continue; without this event it would count as completed.
async fn broken(outlet: &Outlet, why: &str) -> Done {
    let error = json!({"error": {"message": why}});
    let outcome = outlet.emit(vec![NewEvent::new(EventKind::RunFailed, Json::of(&error))]).await;
    if outcome.is_ok() { Done::Ended } else { Done::Stopped }
}

/// Whether work stopped because its run has ended, not because another holder has it.
async fn has_ended(execution: &Execution) -> bool {
    execution.host.status().await.is_ok_and(|status| status.is_none_or(Status::is_terminal))
}
