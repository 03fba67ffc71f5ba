//! [`Agent`]: executes a run, in the server or in a runner.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::Value;

use crate::{
    domain::{context::RunContext, id::Name},
    emitters::host::HostError,
    engine::{Ended, RunEnv},
};

/// An agent that can execute a run.
pub trait Agent: Send + Sync {
    /// Executes the run until it ends or waits; another call continues it. The completed value is the run's output. An
    /// error is the host's, possibly temporary, and says nothing about the run.
    fn work(self: Arc<Self>, env: RunEnv, input: Value) -> BoxFuture<'static, Result<Ended<Value>, HostError>>;

    /// Maximum duration of one call of [`Agent::work`]; the time a run waits is not part of it.
    fn time_max(&self) -> Duration;
}

/// The agents a process knows.
pub trait AgentResolver: Send + Sync {
    fn names(&self) -> Vec<Name>;

    /// Resolves an agent for one run, with its current models, tools and credentials. The error becomes the run's
    /// failure.
    fn resolve<'a>(&'a self, agent: &'a Name, run: &'a RunContext) -> BoxFuture<'a, Result<Arc<dyn Agent>, String>>;

    /// Stops what was started for the agents, such as tool servers.
    fn close(&self) -> BoxFuture<'_, ()>;
}
