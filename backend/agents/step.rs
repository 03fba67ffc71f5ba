//! [`run_step`]: the tool calls of one step, side by side, each with its events.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::join_all};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{
    emitter::Emitter,
    schema,
    sink::SinkError,
    tools::{Tool, ToolError, Toolbox},
};
use crate::domain::{context::RunContext, id::SpanId};

/// A time that only grows, counted from any start.
pub type Stopwatch = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The runtime's monotonic clock; a test that pauses it pauses this one.
pub fn monotonic() -> Stopwatch {
    let start = tokio::time::Instant::now();
    Arc::new(move || start.elapsed())
}

/// One tool call, as the agent decided it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The call's id: pairs its start with its end, unique in its run.
    pub span: SpanId,
    pub tool: String,
    pub args: Value,
}

/// How a call went, with its whole result (the event may hold only the beginning).
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub span: SpanId,
    pub tool: String,
    pub result: Result<Value, ToolError>,
    pub took: Duration,
}

/// For whom, with what and within which bounds the calls of a step are made.
pub struct Step<'a> {
    pub context: &'a RunContext,
    pub emitter: &'a dyn Emitter,
    pub tools: &'a Toolbox,
    /// The step's own span, above the spans of its calls.
    pub parent: Option<&'a SpanId>,
    pub stopwatch: &'a Stopwatch,
    /// Calls at work at a time, at least 1.
    pub parallel_max: usize,
    /// Longest time one call may take. A blocking tool that is late is no longer waited for, but not stopped.
    pub call_time_max: Duration,
}

/// Makes all calls and gives their outcomes in the order of the calls.
///
/// A tool that fails, panics, is late or does not exist is an outcome like any other. The error is the log's: when it
/// takes no more events the step has no meaning, but calls that began are still brought to their end first.
pub async fn run_step(step: &Step<'_>, calls: Vec<Call>) -> Result<Vec<Outcome>, SinkError> {
    let places = Semaphore::new(step.parallel_max.max(1));
    let outcomes = join_all(calls.into_iter().map(|call| in_turn(step, &places, call))).await;
    outcomes.into_iter().collect()
}

/// Waits for the exclusive turn before it takes a place, so that waiting calls leave the places to others.
async fn in_turn(step: &Step<'_>, places: &Semaphore, call: Call) -> Result<Outcome, SinkError> {
    let tool = step.tools.get(&call.tool);
    let turn = match &tool {
        Ok(tool) if tool.exclusive() => Some(step.tools.turn().lock().await),
        _ => None,
    };
    let place = places.acquire().await.map_err(SinkError::new)?;
    let outcome = logged(step, tool, call).await;
    drop((place, turn));
    outcome
}

/// Makes a call between its two events.
async fn logged(step: &Step<'_>, found: Result<Arc<dyn Tool>, ToolError>, call: Call) -> Result<Outcome, SinkError> {
    let Call { span, tool: name, args } = call;
    step.emitter.tool_started(&span, &name, &args, step.parent).await?;
    let began = (step.stopwatch)();
    let result = match found.and_then(|tool| schema::check(&tool.schema(), &args).map(|()| tool)) {
        Ok(tool) => tokio::time::timeout(step.call_time_max, made(tool, step.context, args))
            .await
            .unwrap_or(Err(ToolError::TimedOut(step.call_time_max))),
        Err(error) => Err(error),
    };
    let took = (step.stopwatch)().saturating_sub(began);
    match &result {
        Ok(value) => step.emitter.tool_completed(&span, &name, value, took, step.parent).await?,
        Err(error) => step.emitter.tool_failed(&span, &name, &error.to_string(), took, step.parent).await?,
    }
    Ok(Outcome { span, tool: name, result, took })
}

/// Makes the call itself; a panic ends here. The context goes along by hand, to whichever thread it is.
async fn made(tool: Arc<dyn Tool>, context: &RunContext, args: Value) -> Result<Value, ToolError> {
    if !tool.blocking() {
        // The block also holds the making of the future, which is the tool's code already.
        let call = AssertUnwindSafe(async { tool.call(context, args).await });
        return call.catch_unwind().await.unwrap_or_else(|panic| Err(panicked(&*panic)));
    }
    let context = context.clone();
    let runtime = tokio::runtime::Handle::current();
    let call = move || runtime.block_on(async { tool.call(&context, args).await });
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => Err(match error.try_into_panic() {
            Ok(panic) => panicked(&*panic),
            Err(error) => ToolError::Failed(error.to_string()),
        }),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> ToolError {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    ToolError::Panicked(text.unwrap_or_else(|| "without a message".to_owned()))
}

#[cfg(test)]
mod tests;
