//! [`run_step`]: the tool calls of one step, concurrently, each with its events.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    exclusive::Locks,
    offload,
    tools::{Tool, ToolError, Toolbox},
};
use crate::{
    domain::{context::RunContext, id::SpanId, limits::TOOL_GRACE_MS},
    emitters::host::HostError,
    engine::{NodeContext, RunEnv, Stop},
};

/// One tool call, as the agent decided it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The call's id: pairs its start with its end, unique in its run.
    pub span: SpanId,
    pub tool: String,
    pub args: Value,
}

/// The outcome of a call, with its result (the event may hold only the beginning).
#[derive(Clone, Debug, PartialEq)]
pub struct CallOutcome {
    pub span: SpanId,
    pub tool: String,
    pub result: Result<Value, ToolError>,
    pub took: Duration,
}

/// Stores outcomes of calls, for a step that may be repeated. A stored outcome is emitted again instead of repeating
/// its call.
pub trait Memory: Send + Sync {
    /// The outcome of a call that was made before.
    fn kept<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Option<Result<Value, ToolError>>>;

    /// Stores the outcome of a call, before its end is emitted.
    fn keep<'a>(&'a self, call: &'a Call, result: &'a Result<Value, ToolError>)
    -> BoxFuture<'a, Result<(), HostError>>;
}

/// Stores results with the current step of a node, each under its call's span.
pub struct NodeMemory<'a, S>(pub &'a NodeContext<S>);

impl<S: Send + Sync> Memory for NodeMemory<'_, S> {
    fn kept<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Option<Result<Value, ToolError>>> {
        Box::pin(async move { self.0.kept(call.span.as_str()) })
    }

    fn keep<'a>(
        &'a self,
        call: &'a Call,
        result: &'a Result<Value, ToolError>,
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async move {
            let kept = serde_json::to_value(result).map_err(HostError::refused)?;
            match self.0.keep(call.span.as_str(), kept).await {
                Err(Stop::Host(error)) => Err(error),
                kept => kept.map_err(HostError::refused),
            }
        })
    }
}

/// The environment, tools and bounds of a step's calls.
pub struct Step<'a> {
    /// Once it is cancelled, no more calls begin.
    pub env: &'a RunEnv,
    pub tools: &'a Toolbox,
    /// Shared by all steps of this process.
    pub locks: Locks,
    /// The step's own span, the parent of its calls' spans.
    pub parent: Option<&'a SpanId>,
    /// Maximum concurrent calls, at least 1.
    pub parallel_max: usize,
    /// Longest time one call may take, unless the tool has its own limit. A late blocking tool is notified and no
    /// longer waited for, but not stopped.
    pub call_time_max: Duration,
    pub memory: Option<&'a dyn Memory>,
    /// Longest result that stays with the run, bytes of JSON.
    pub output_bytes_max: usize,
}

/// Makes all calls and returns their outcomes in the order of the calls.
///
/// A tool that fails, panics, is late or does not exist is an outcome like any other. An error is the host's: if the
/// log accepts no more events the step is void, but calls that began are completed first.
pub async fn run_step(step: &Step<'_>, calls: Vec<Call>) -> Result<Vec<CallOutcome>, HostError> {
    let places = Semaphore::new(step.parallel_max.max(1));
    let outcomes = join_all(calls.into_iter().map(|call| in_turn(step, &places, call))).await;
    outcomes.into_iter().collect()
}

/// Waits for the call's lock before a slot, so that calls that wait for a lock occupy no slots.
async fn in_turn(step: &Step<'_>, places: &Semaphore, call: Call) -> Result<CallOutcome, HostError> {
    let tool = step.tools.get(&call.tool);
    let shared = match tool {
        Ok(tool) => tool.exclusive(step.env.host.context()),
        Err(_) => None,
    };
    let held = match &shared {
        Some(shared) => Some(step.locks.lock(shared).await),
        None => None,
    };
    let place = places.acquire().await.map_err(HostError::refused)?;
    if step.env.cancel.is_cancelled() {
        return Ok(CallOutcome {
            span: call.span,
            tool: call.tool,
            result: Err(ToolError::Cancelled),
            took: Duration::ZERO,
        });
    }
    let outcome = logged(step, call).await;
    drop((place, held));
    outcome
}

/// Makes a call between its two events.
async fn logged(step: &Step<'_>, call: Call) -> Result<CallOutcome, HostError> {
    step.env.emitter.tool_started(&call.span, &call.tool, &call.args, step.parent).await?;
    let began = (step.env.stopwatch)();
    let kept = match step.memory {
        Some(memory) => memory.kept(&call).await,
        None => None,
    };
    let result = if let Some(result) = kept {
        result
    } else {
        let result = called(step, &call).await;
        if let Some(memory) = step.memory {
            memory.keep(&call, &result).await?;
        }
        result
    };
    let Call { span, tool: name, .. } = call;
    let took = (step.env.stopwatch)().saturating_sub(began);
    match &result {
        Ok(value) => step.env.emitter.tool_completed(&span, &name, value, took, step.parent).await?,
        Err(error) => step.env.emitter.tool_failed(&span, &name, &error.to_string(), took, step.parent).await?,
    }
    Ok(CallOutcome { span, tool: name, result, took })
}

/// Makes the call, and offloads a result that is too long.
async fn called(step: &Step<'_>, call: &Call) -> Result<Value, ToolError> {
    let tool = step.tools.fit(&call.tool, &call.args)?;
    let value = in_time(step, tool, call.args.clone()).await?;
    Ok(offload::within(&*step.env.host, &call.tool, value, step.output_bytes_max).await)
}

/// Makes the call until it is done, late or cancelled; a late or cancelled tool has [`TOOL_GRACE_MS`] to clean up.
async fn in_time(step: &Step<'_>, tool: Arc<dyn Tool>, args: Value) -> Result<Value, ToolError> {
    let time_max = tool.time_max().unwrap_or(step.call_time_max);
    let cancel = step.env.cancel.child_token();
    // Also notifies the tool of a call that is dropped midway with its whole step.
    let _cancel_on_drop = cancel.clone().drop_guard();
    let mut work = std::pin::pin!(made(tool, step.env.host.context(), args, &cancel));
    let grace = Duration::from_millis(TOOL_GRACE_MS);
    tokio::select! {
        biased;
        result = &mut work => result,
        () = step.env.cancel.cancelled() => {
            tokio::time::timeout(grace, work).await.unwrap_or(Err(ToolError::Cancelled))
        }
        () = tokio::time::sleep(time_max) => {
            cancel.cancel();
            let _ = tokio::time::timeout(grace, work).await;
            Err(ToolError::TimedOut(time_max))
        }
    }
}

/// Makes the call itself and catches a panic. The context is passed explicitly, also to another thread.
async fn made(
    tool: Arc<dyn Tool>,
    context: &RunContext,
    args: Value,
    cancel: &CancellationToken,
) -> Result<Value, ToolError> {
    if !tool.blocking() {
        // The block includes creating the future, which is the tool's code already.
        let call = AssertUnwindSafe(async { tool.call(context, args, cancel).await });
        return call.catch_unwind().await.unwrap_or_else(|panic| Err(panicked(&*panic)));
    }
    let (context, cancel) = (context.clone(), cancel.clone());
    let runtime = tokio::runtime::Handle::current();
    let call = move || runtime.block_on(async { tool.call(&context, args, &cancel).await });
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
