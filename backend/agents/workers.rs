//! Runs that work for a run: made once and told once, however often the step is taken that asks for them.

use serde_json::Value;

use super::spawner::{Child, SpawnError, Spawner};
use crate::{
    domain::{
        id::{RunId, SpanId, ThreadId},
        run::Status,
    },
    engine::{Stop, Visit, visit::ChildEnd},
};

/// A worker that was asked for: its run, or why there is none.
pub struct Worker {
    pub title: String,
    pub run: Result<RunId, SpawnError>,
}

/// Makes a run that waits for whoever serves its agent, and tells so under `span`. Asked again, it is the same run, and
/// what was refused stays so; what was out of reach is asked for again. `key` tells the workers of one node apart, at most 60 bytes.
pub async fn spawn<S>(
    visit: &Visit<S>,
    spawner: &dyn Spawner,
    key: &str,
    span: &SpanId,
    child: Child,
) -> Result<Worker, Stop> {
    let (title, refused) = (child.title.clone(), format!("no.{key}"));
    if let Some(reason) = visit.kept::<String>(&refused) {
        return Ok(Worker { title, run: Err(SpawnError::refused(reason)) });
    }
    let run_id = RunId::trusted(visit.id(&format!("run.{key}")).await?);
    // What a worker remembers is its own, whatever thread its supervisor works on.
    let thread_id = ThreadId::trusted(&format!("run:{run_id}"));
    let child = Child { run_id: Some(run_id), thread_id: Some(thread_id), start: false, ..child };
    let run = match spawner.spawn(&visit.context, child).await {
        Ok(context) => {
            visit.emitter.worker_spawned(&context, &title, Some(span)).await?;
            Ok(run_id)
        }
        Err(error) if error.is_passing => return Err(Stop::Later(error.to_string())),
        Err(error) => {
            visit.keep(&refused, Value::from(error.reason.as_str())).await?;
            Err(error)
        }
    };
    Ok(Worker { title, run })
}

/// Waits until all have ended, and gives their ends in their order; the run rests in the meantime.
pub async fn wait<S>(
    visit: &Visit<S>,
    reason: &str,
    workers: &[Worker],
) -> Result<Vec<Result<ChildEnd, SpawnError>>, Stop> {
    let runs: Vec<RunId> = workers.iter().filter_map(|worker| worker.run.as_ref().ok().copied()).collect();
    let ends = if runs.is_empty() { Vec::new() } else { visit.wait_for(reason, &runs).await? };
    let mut ends = ends.into_iter();
    let end = |worker: &Worker| match &worker.run {
        Ok(_) => ends.next().map(Ok).ok_or_else(|| Stop::failed("a worker's end is missing")),
        Err(refused) => Ok(Err(refused.clone())),
    };
    workers.iter().map(end).collect()
}

/// Tells how a worker ended. `brought` reads its output and says what the log keeps of it; the inner error is in words
/// for whoever gave the work.
pub async fn told<S, T>(
    visit: &Visit<S>,
    title: &str,
    end: &ChildEnd,
    brought: impl FnOnce(&Value) -> Result<(T, Value), String>,
) -> Result<Result<T, String>, Stop> {
    let read = match end.status {
        Status::Completed => brought(end.output.as_ref().unwrap_or(&Value::Null)),
        other => {
            let reason = end.error.as_ref().and_then(|error| error["message"].as_str()).map(str::to_owned);
            Err(reason.unwrap_or_else(|| format!("the worker's run is {}", other.as_str())))
        }
    };
    match read {
        Ok((value, summary)) => {
            visit.emitter.worker_completed(end.run_id, title, &summary, end.took).await?;
            Ok(Ok(value))
        }
        Err(reason) => {
            visit.emitter.worker_failed(end.run_id, title, &reason, end.took).await?;
            Ok(Err(reason))
        }
    }
}
