//! What nobody else would do: jobs of ended runs go with the state the runs left behind, and runs whose holders all fell silent fail.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Dispatch;
use crate::{
    domain::{
        event::NewEvent,
        id::RunId,
        job::{LEASE_LOST, lost_event_id},
        json::Json,
        limits::{JOB_ATTEMPTS_MAX, JOB_SWEEP_MS},
        principal::OwnerId,
        run::Refusal,
    },
    store,
    threads::own_thread,
    timeline::emit::EmitError,
};

impl Dispatch {
    /// Sweeps now and then until `stop`.
    pub(super) async fn sweep(self, stop: CancellationToken) {
        let work = async {
            let mut every = tokio::time::interval(Duration::from_millis(JOB_SWEEP_MS));
            let mut after = None;
            loop {
                every.tick().await;
                match Box::pin(self.sweep_once(after)).await {
                    Ok(next) => after = next,
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "jobs were not looked after");
                    }
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// One look at a bounded number of jobs; says where the next one begins.
    pub async fn sweep_once(&self, after: Option<Uuid>) -> Result<Option<Uuid>, store::Error> {
        let swept = self.timeline.store().sweep_jobs(after, self.timeline.clock().held()).await?;
        // Whoever held them is gone, or nobody did: a run may be cancelled while it waits.
        for (owner, run) in swept.ended {
            if let Err(error) = self.timeline.store().delete_threads(&owner, &[own_thread(run)]).await {
                tracing::warn!(run_id = %run, error = &error as &dyn std::error::Error, "the state of an ended run was left behind");
            }
        }
        for (owner, run, lease) in swept.spent {
            self.fail(&owner, run).await?;
            self.finish(lease).await?;
        }
        Ok(swept.next)
    }

    /// Ends a run whose holders all fell silent. Its id makes the event the only one, whichever processes say it.
    async fn fail(&self, owner: &OwnerId, run: RunId) -> Result<(), store::Error> {
        let Some(context) = self.timeline.context(owner, run).await? else { return Ok(()) };
        let message = format!("{JOB_ATTEMPTS_MAX} holders of this run fell silent, the last one too");
        let payload = serde_json::json!({ "error": { "code": LEASE_LOST, "message": message } });
        let event = NewEvent::new("run.failed", Json::of(&payload)).event_id(lost_event_id());
        match self.timeline.emit_run_event(&context, vec![event]).await {
            Ok(ack) if ack.events.iter().all(|event| !event.duplicate) => {
                metrics::counter!("runreel_jobs_lost_total").increment(1);
                tracing::warn!(run_id = %run, "a run failed because its holders fell silent");
            }
            Ok(_) | Err(EmitError::Refused(Refusal::Ended { .. }) | EmitError::NotFound) => {}
            // The next sweep tries again.
            Err(error) => tracing::warn!(run_id = %run, %error, "a run that lost its holders could not be failed yet"),
        }
        Ok(())
    }
}
