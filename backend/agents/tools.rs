//! [`Tool`]: one thing an agent can do, and [`Toolbox`]: the ones a run was given.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::domain::context::RunContext;

/// A tool did not give a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    #[error("there is no tool named {0}")]
    Unknown(String),
    /// Which argument is wrong and how.
    #[error("wrong arguments: {0}")]
    Arguments(String),
    #[error("{0}")]
    Failed(String),
    #[error("the tool panicked: {0}")]
    Panicked(String),
    #[error("the tool took longer than {0:?}")]
    TimedOut(Duration),
}

/// What a call gives back.
pub type Called<'a> = BoxFuture<'a, Result<Value, ToolError>>;

/// One thing an agent can do. The run it acts for is an argument of every call and nowhere else.
pub trait Tool: Send + Sync {
    fn name(&self) -> &str;

    /// What it does, for whoever chooses among tools.
    fn description(&self) -> &str;

    /// JSON Schema of the arguments; [`super::schema::check`] says which part of the standard is looked at.
    fn schema(&self) -> Value;

    /// It writes shared data: never two exclusive calls of one toolbox at a time.
    fn exclusive(&self) -> bool {
        false
    }

    /// It occupies its thread: called away from the async threads.
    fn blocking(&self) -> bool {
        false
    }

    /// `args` have passed the schema.
    fn call<'a>(&'a self, context: &'a RunContext, args: Value) -> Called<'a>;
}

/// The tools of a run, resolved once when it starts. Cloning shares it, the exclusive turn included.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    turn: Arc<Mutex<()>>,
}

impl Toolbox {
    /// Of two tools with one name the later one stays.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let tools = tools.into_iter().map(|tool| (tool.name().to_owned(), tool)).collect();
        Self { tools, turn: Arc::default() }
    }

    pub fn get(&self, name: &str) -> Result<Arc<dyn Tool>, ToolError> {
        self.tools.get(name).cloned().ok_or_else(|| ToolError::Unknown(name.to_owned()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.values()
    }

    /// Held while an exclusive tool works.
    pub(super) fn turn(&self) -> &Mutex<()> {
        &self.turn
    }
}
