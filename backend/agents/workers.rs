//! Worker runs: created once and reported once, however often the step that requests them is repeated.

use serde_json::Value;

use crate::{
    domain::{
        failure::Failure,
        id::{Name, RunId, SpanId},
        run::Status,
    },
    emitters::host::{Child, ChildEnd, HostError},
    engine::{NodeContext, Stop},
};

/// A requested worker: its run, or why there is none.
pub struct Worker {
    pub title: String,
    pub run: Result<RunId, HostError>,
}

/// What a worker is asked to do.
pub struct Task {
    pub agent: Name,
    pub title: String,
    pub input: Value,
}

/// Creates a run for an executor that serves its agent, and reports it under `span`. A repeated call returns the same
/// run or the same refusal; an outage is retried. `key` distinguishes the workers of one node, at most 60 bytes.
pub async fn spawn<S>(
    context: &NodeContext<S>,
    key: &str,
    span: &SpanId,
    Task { agent, title, input }: Task,
) -> Result<Worker, Stop> {
    let refused = format!("no.{key}");
    if let Some(reason) = context.kept::<String>(&refused) {
        return Ok(Worker { title, run: Err(HostError::refused(reason)) });
    }
    let run_id = RunId::trusted(context.id(&format!("run.{key}")).await?);
    let child = Child { run_id, agent, title: title.clone(), input };
    let spawned = context.env.host.spawn(child).await;
    let run = match spawned.map_err(|error| error.because("the run could not be created")) {
        Ok(worker) => {
            context.env.emitter.worker_spawned(&worker, &title, Some(span)).await?;
            Ok(run_id)
        }
        Err(error) if error.is_retryable => return Err(error.into()),
        Err(error) => {
            context.keep(&refused, Value::from(error.reason.as_str())).await?;
            Err(error)
        }
    };
    Ok(Worker { title, run })
}

/// Waits until all workers have ended, and returns their ends in order; the run is suspended meanwhile.
pub async fn wait<S>(
    context: &NodeContext<S>,
    reason: &str,
    workers: &[Worker],
) -> Result<Vec<Result<ChildEnd, HostError>>, Stop> {
    let runs: Vec<RunId> = workers.iter().filter_map(|worker| worker.run.as_ref().ok().copied()).collect();
    let ends = if runs.is_empty() { Vec::new() } else { context.wait_for(reason, &runs).await? };
    let mut ends = ends.into_iter();
    let end = |worker: &Worker| match &worker.run {
        Ok(_) => ends.next().map(Ok).ok_or_else(|| Stop::failed("a worker's end is missing")),
        Err(refused) => Ok(Err(refused.clone())),
    };
    workers.iter().map(end).collect()
}

/// Reports how a worker ended. `brought` reads its output and returns a value and what the log keeps of it; the inner
/// error is for the delegating agent.
pub async fn told<S, T>(
    context: &NodeContext<S>,
    title: &str,
    end: &ChildEnd,
    brought: impl FnOnce(&Value) -> Result<(T, Value), String>,
) -> Result<Result<T, String>, Stop> {
    let read = match end.status {
        Status::Completed => brought(end.output.as_ref().unwrap_or(&Value::Null)),
        other => {
            let failure = end.error.as_ref().and_then(Failure::read);
            Err(failure
                .map_or_else(|| format!("the worker's run is {}", other.as_str()), |failure| failure.to_string()))
        }
    };
    match read {
        Ok((value, summary)) => {
            context.env.emitter.worker_completed(end.run_id, title, &summary, end.took).await?;
            Ok(Ok(value))
        }
        Err(reason) => {
            context.env.emitter.worker_failed(end.run_id, title, &reason, end.took).await?;
            Ok(Err(reason))
        }
    }
}
