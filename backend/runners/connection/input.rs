//! The inputs of runs before assignment: inputs too large for the log are read from their artifacts.

use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use serde_json::json;
use tokio::time::Instant;

use super::{Connection, later};
use crate::{
    artifacts,
    dispatch::{Assignment, Dispatch},
    domain::{
        event::{EventKind, NewEvent},
        id::Title,
        job::said_event_id,
        json::Json,
        limits::{READ_WAIT_MS_MAX, RUNNER_INPUTS_AT_ONCE},
    },
    timeline::emit::EmitError,
};

/// A run that is not assigned now: it was put off, or has failed.
pub(super) struct NotAssigned;

impl Connection {
    /// The complete inputs of these jobs, in order. They share the time limit of one, and some are read concurrently.
    pub(super) fn inputs(
        &self,
        jobs: Vec<Assignment>,
    ) -> impl Stream<Item = (Assignment, Result<Option<Json>, NotAssigned>)> + Send + use<> {
        let (dispatch, until) = (self.hub.dispatch.clone(), Instant::now() + Duration::from_millis(READ_WAIT_MS_MAX));
        let read = move |job: Assignment| {
            let dispatch = dispatch.clone();
            async move {
                let input = whole(&dispatch, &job, until).await;
                (job, input)
            }
        };
        stream::iter(jobs).map(read).buffered(RUNNER_INPUTS_AT_ONCE)
    }
}

/// The input of a job. If it cannot be read now, the job is put off until a later claim; if its artifact is damaged,
/// the run fails.
async fn whole(dispatch: &Dispatch, job: &Assignment, until: Instant) -> Result<Option<Json>, NotAssigned> {
    let Some(input) = job.fields.input.clone() else { return Ok(None) };
    let reading = dispatch.timeline().whole_input(&job.context, input);
    let reason = match tokio::time::timeout_at(until, reading).await {
        Ok(Ok(input)) => return Ok(Some(input)),
        Ok(Err(error @ artifacts::Error::Damaged)) => match fail(dispatch, job, &error.to_string()).await {
            Ok(()) => return Err(NotAssigned),
            Err(error) => error.to_string(),
        },
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it takes too long".to_owned(),
    };
    tracing::warn!(run_id = %job.context.run_id, reason, "input of a run not read; the run waits");
    later(dispatch.put_off(job.lease_id).await);
    Err(NotAssigned)
}

/// Cancels the runs below, then fails a run whose input is unreadable.
async fn fail(dispatch: &Dispatch, job: &Assignment, why: &str) -> Result<(), EmitError> {
    let (timeline, context) = (dispatch.timeline(), &job.context);
    let reason = Title::trusted("the run it worked for failed");
    timeline.cancel_below(&context.owner_id, context.run_id, Some(&reason)).await?;
    let message = format!("the input cannot be read: {why}");
    let error = json!({"error": {"message": message, "code": "input_unreadable"}});
    let failed = NewEvent::new(EventKind::RunFailed, Json::of(&error)).event_id(said_event_id(job.attempt, "failed"));
    timeline.emit_run_event(context, vec![failed]).await?;
    later(dispatch.finish(job.lease_id).await);
    Ok(())
}
