//! [`Agent`]: a graph and all it needs, carried out for one run wherever that is: in the server, or in a runner.
//!
//! What differs between the two stands on the [`Desk`]: where the state is kept, who is told and what the log says.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{IdSource, Stopwatch},
    domain::{context::RunContext, id::Name},
    emitters::emitter::Emitter,
    engine::{Drive, Ended, Graph, Limits, State, drive::DriveError, journal::Journal, visit::Facts},
};

/// What an agent has before it while it works on a run.
#[derive(Clone)]
pub struct Desk {
    pub context: Arc<RunContext>,
    /// Its event ids follow from the spans.
    pub emitter: Arc<dyn Emitter>,
    pub journal: Arc<dyn Journal>,
    pub facts: Arc<dyn Facts>,
    pub ids: IdSource,
    pub stopwatch: Stopwatch,
    pub cancel: CancellationToken,
    /// The run's, as it was created.
    pub input: Value,
}

impl Desk {
    /// Drives a graph for this run; `begin` gets the state an earlier run of the thread has left, if there is one.
    pub async fn drive<S: State>(
        &self,
        graph: &Graph<S>,
        limits: Limits,
        begin: impl FnOnce(Option<S>) -> S + Send,
    ) -> Result<Ended<S>, DriveError> {
        let drive = Drive {
            graph,
            context: Arc::clone(&self.context),
            emitter: Arc::clone(&self.emitter),
            journal: Arc::clone(&self.journal),
            facts: Arc::clone(&self.facts),
            ids: self.ids.clone(),
            stopwatch: Arc::clone(&self.stopwatch),
            cancel: self.cancel.clone(),
            limits,
        };
        drive.run(begin).await
    }
}

/// Whoever can work on a run.
pub trait Agent: Send + Sync {
    /// Works until the run has ended or waits; called again it goes on. What completes is the run's output.
    fn work(self: Arc<Self>, desk: Desk, limits: Limits) -> BoxFuture<'static, Result<Ended<Value>, DriveError>>;
}

/// An agent for one run, and within which bounds it works.
pub struct Hired {
    pub agent: Arc<dyn Agent>,
    pub limits: Limits,
    /// Longest time of the run at work; time it waits does not count.
    pub time_max: Duration,
}

impl Hired {
    /// Works on the run. The error is the log's or the journal's and may pass; it says nothing about the run.
    pub async fn work(self, desk: Desk) -> Result<Ended<Value>, DriveError> {
        let Self { agent, limits, time_max } = self;
        let late = || Ended::Failed { node: None, error: format!("the run was at work longer than {time_max:?}") };
        match tokio::time::timeout(time_max, agent.work(desk, limits)).await.unwrap_or_else(|_| Ok(late())) {
            Err(DriveError::Journal(error)) if !error.transient => {
                Ok(Ended::Failed { node: None, error: error.to_string() })
            }
            other => other,
        }
    }
}

/// The agents a process knows.
pub trait Roster: Send + Sync {
    fn names(&self) -> Vec<Name>;

    /// What an agent is made of, resolved for one run: models, tools and their credentials as they are now. The error is
    /// for the person who reads the failed run.
    fn resolve<'a>(&'a self, agent: &'a Name, run: &'a RunContext) -> BoxFuture<'a, Result<Hired, String>>;

    /// Ends what was started for the agents.
    fn close(&self) -> BoxFuture<'_, ()>;
}
