//! [`Spawner`]: how a supervisor gets a run for each of its workers.

use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    client::{Client, Kind},
    clock::{IdSource, Stopwatch},
    domain::{
        context::{Origin, Role, RunContext},
        id::{Name, RunId, ThreadId},
        principal::OwnerId,
    },
};

/// The run a supervisor wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Chosen by whoever must find the same run when he asks again.
    pub run_id: Option<RunId>,
    /// Otherwise the supervisor's.
    pub thread_id: Option<ThreadId>,
    /// Whether the supervisor carries it out himself; otherwise it waits for whoever serves the agent.
    pub start: bool,
    pub agent: Name,
    pub title: String,
    pub input: Value,
}

/// There is no such run now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run could not be created: {reason}")]
pub struct SpawnError {
    pub reason: String,
    /// Whether the same may work later. Then the run may also be there already.
    pub is_passing: bool,
}

impl SpawnError {
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_passing: false }
    }

    pub fn passing(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_passing: true }
    }
}

/// Creates runs with the role of a worker, below the supervisor's.
pub trait Spawner: Send + Sync {
    fn spawn<'a>(&'a self, parent: &'a RunContext, child: Child) -> BoxFuture<'a, Result<RunContext, SpawnError>>;
}

/// Creates runs over HTTP. It chooses their ids, so a request whose answer was lost is made again and finds the run.
#[derive(Clone)]
pub struct RemoteSpawner {
    client: Client,
    ids: IdSource,
    stopwatch: Stopwatch,
    patience: Duration,
}

impl RemoteSpawner {
    /// `patience` is how long one creation may try before it gives up.
    pub fn new(client: Client, ids: IdSource, stopwatch: Stopwatch, patience: Duration) -> Self {
        Self { client, ids, stopwatch, patience }
    }

    async fn create(&self, parent: RunId, child: Child) -> Result<RunContext, SpawnError> {
        let body = json!({
            "run_id": child.run_id.unwrap_or_else(|| RunId::trusted(self.ids.uuid())), "parent_run_id": parent,
            "role": Role::Worker.as_str(), "agent": child.agent, "title": child.title, "input": child.input,
            "thread_id": child.thread_id, "start": child.start,
        });
        let began = (self.stopwatch)();
        loop {
            let error = match self.client.create_run(&body).await {
                Ok(run) => return context_of(&run),
                Err(error) => error,
            };
            let waited = (self.stopwatch)().saturating_sub(began);
            if !error.kind.is_transient() || waited >= self.patience {
                let is_passing = error.kind.is_transient() || error.kind == Kind::Refused;
                return Err(SpawnError { reason: error.to_string(), is_passing });
            }
            tokio::time::sleep(error.retry_after.unwrap_or(AGAIN_AFTER).min(self.patience)).await;
        }
    }
}

/// Wait before a creation is tried again, where the server names none.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

impl Spawner for RemoteSpawner {
    fn spawn<'a>(&'a self, parent: &'a RunContext, child: Child) -> BoxFuture<'a, Result<RunContext, SpawnError>> {
        Box::pin(self.create(parent.run_id, child))
    }
}

/// Reads the context back from a run as the server tells it.
pub fn context_of(run: &Value) -> Result<RunContext, SpawnError> {
    #[derive(Deserialize)]
    struct Told {
        run_id: RunId,
        root_run_id: RunId,
        parent_run_id: Option<RunId>,
        owner_id: String,
        thread_id: Option<ThreadId>,
        session_id: Option<Name>,
        agent: Option<Name>,
        #[serde(default)]
        origin: Option<Origin>,
        #[serde(default)]
        trace_id: Option<String>,
        role: String,
    }
    let text = run.to_string();
    let told: Told =
        serde_json::from_str(&text).map_err(|error| SpawnError::refused(format!("the answer: {error}")))?;
    let role = Role::parse(&told.role).ok_or_else(|| SpawnError::refused("the answer has an unknown role"))?;
    Ok(RunContext {
        run_id: told.run_id,
        root_run_id: told.root_run_id,
        parent_run_id: told.parent_run_id,
        owner_id: OwnerId::trusted(&told.owner_id),
        thread_id: told.thread_id,
        session_id: told.session_id,
        role,
        agent: told.agent,
        origin: told.origin,
        trace_id: told.trace_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_is_what_the_server_says_it_is() {
        let id = "0198c0de-0000-7000-8000-000000000001";
        let run = json!({
            "run_id": id, "root_run_id": id, "parent_run_id": null, "owner_id": "00ff", "thread_id": "t",
            "session_id": null, "agent": "a", "role": "worker", "status": "running",
        });
        let context = context_of(&run).unwrap();
        assert_eq!((context.run_id.to_string().as_str(), context.role), (id, Role::Worker));
        assert_eq!(context.thread_id.unwrap().as_str(), "t");
        for (member, bad) in [("run_id", json!("x")), ("role", json!("boss")), ("owner_id", Value::Null)] {
            let mut run = run.clone();
            run[member] = bad;
            assert!(context_of(&run).is_err(), "{member}");
        }
    }
}
