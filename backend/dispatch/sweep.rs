//! Cleanup that no holder does: jobs of ended runs are removed with the runs' own state, and runs whose holders all
//! fell silent are failed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Dispatch;
use crate::{
    domain::{
        event::{EventKind, NewEvent},
        id::{Name, RunId},
        job::{AGENT_UNSERVED, LEASE_LOST, failed_event_id},
        json::Json,
        limits::{JOB_ATTEMPTS_MAX, JOB_IDLE_MS, JOB_SWEEP_MS, JOB_UNSERVED_MS_MAX},
        principal::OwnerId,
        run::Refusal,
    },
    store::{self, jobs::SweepResult},
    threads::own_thread,
    timeline::emit::EmitError,
};

impl Dispatch {
    /// Sweeps periodically until `stop`.
    pub(super) async fn sweep(self, stop: CancellationToken) {
        let work = async {
            let (mut after, mut pause_ms) = (None, JOB_SWEEP_MS);
            loop {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                match Box::pin(self.sweep_after(after)).await {
                    Ok(swept) => {
                        after = swept.next;
                        pause_ms = if swept.is_idle { JOB_IDLE_MS } else { JOB_SWEEP_MS };
                    }
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "job sweep failed");
                    }
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Sweeps a bounded number of jobs; returns where the next sweep begins.
    pub async fn sweep_once(&self, after: Option<Uuid>) -> Result<Option<Uuid>, store::Error> {
        Ok(self.sweep_after(after).await?.next)
    }

    async fn sweep_after(&self, after: Option<Uuid>) -> Result<SweepResult, store::Error> {
        let mut swept = self.timeline.store().jobs().sweep(after, self.timeline.clock().held()).await?;
        self.fail_unserved(std::mem::take(&mut swept.unserved)).await?;
        // Their holder is gone, or there was none: a run may be cancelled while it waits.
        for (owner, run) in &swept.ended {
            self.forget(owner, *run).await;
        }
        for (owner, run, lease) in &swept.spent {
            let message = format!("the lease of this run expired {JOB_ATTEMPTS_MAX} times");
            self.fail(owner, *run, LEASE_LOST, &message).await?;
            self.finish(*lease).await?;
        }
        Ok(swept)
    }

    /// Removes the thread that only this run, which has ended, used.
    pub(crate) async fn forget(&self, owner: &OwnerId, run: RunId) {
        if let Err(error) = self.timeline.store().threads().delete(owner, &[own_thread(run)]).await {
            tracing::warn!(run_id = %run, error = &error as &dyn std::error::Error, "state of an ended run not removed");
        }
    }

    /// Fails runs of messages whose agent no process serves: each blocks the next message of its conversation.
    async fn fail_unserved(&self, runs: Vec<(OwnerId, RunId, Name)>) -> Result<(), store::Error> {
        let up_ms = (self.timeline.clock().now() - self.began_at).num_milliseconds();
        if up_ms < JOB_UNSERVED_MS_MAX {
            // Runners disconnected together with the previous server need time to reconnect.
            return Ok(());
        }
        let waited_s = JOB_UNSERVED_MS_MAX / 1_000;
        for (owner, run, agent) in runs {
            let message = format!(
                "no executor for the agent {agent} for {waited_s} s: no server has it in its --config, and no connected \
                 runner serves it"
            );
            self.fail(&owner, run, AGENT_UNSERVED, &message).await?;
        }
        Ok(())
    }

    /// Fails a run that no process executes. The event's id makes it unique, whichever processes emit it.
    async fn fail(&self, owner: &OwnerId, run: RunId, code: &str, message: &str) -> Result<(), store::Error> {
        let Some(context) = self.timeline.context(owner, run).await? else { return Ok(()) };
        let payload = serde_json::json!({ "error": { "code": code, "message": message } });
        let event = NewEvent::new(EventKind::RunFailed, Json::of(&payload)).event_id(failed_event_id(code));
        match self.timeline.emit_run_event(&context, vec![event]).await {
            Ok(ack) if ack.events.iter().all(|event| !event.duplicate) => {
                metrics::counter!("runreel_jobs_lost_total").increment(1);
                tracing::warn!(run_id = %run, code, "run failed: no executor");
            }
            Ok(_) | Err(EmitError::Refused(Refusal::Ended { .. }) | EmitError::NotFound) => {}
            // Retried by the next sweep.
            Err(error) => {
                tracing::warn!(run_id = %run, %error, "run without an executor not failed yet; will retry");
            }
        }
        Ok(())
    }
}
