//! [`Agent`]: works on a run, in the server or at a runner.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::Value;

use crate::{
    domain::{context::RunContext, id::Name},
    emitters::host::HostError,
    engine::{Ended, RunEnv},
};

/// Something that can work on a run.
pub trait Agent: Send + Sync {
    /// Works until the run has ended or waits; called again, it continues. What completes is the run's output. The
    /// error is the host's and may be temporary; it says nothing about the run.
    fn work(self: Arc<Self>, env: RunEnv, input: Value) -> BoxFuture<'static, Result<Ended<Value>, HostError>>;

    /// Longest time a run may be at work; time it waits does not count.
    fn time_max(&self) -> Duration;
}

/// The agents a process knows.
pub trait AgentResolver: Send + Sync {
    fn names(&self) -> Vec<Name>;

    /// Resolves an agent for one run: its models, tools and their credentials as they are now. The error is for the
    /// person who reads the failed run.
    fn resolve<'a>(&'a self, agent: &'a Name, run: &'a RunContext) -> BoxFuture<'a, Result<Arc<dyn Agent>, String>>;

    /// Stops what was started for the agents.
    fn close(&self) -> BoxFuture<'_, ()>;
}
