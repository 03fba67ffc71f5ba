//! What a lane does while its database is unavailable: it keeps answering.
//!
//! An emit that was never sent is refused when it has waited too long, and is then certainly not stored. One whose
//! commit got no answer is resolved by reading, on a new connection, what the lane holds; its client gets "outcome
//! unknown" if that takes longer than a client may wait.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    emit::{AppendRequest, EmitError},
    plan::Plan,
    write_queue::WriteQueue,
    writer::Lane,
};
use crate::{
    domain::limits::EMIT_WAIT_MS_MAX,
    store::{self, append::Committed},
};

/// How long a client waits for any answer.
const ANSWER_MAX: Duration = Duration::from_millis(EMIT_WAIT_MS_MAX);
/// How often waiting emits are checked while the database is unavailable.
const TICK: Duration = Duration::from_millis(50);

impl Lane {
    /// Opens the lane's connection again, and meanwhile refuses requests that have waited too long.
    pub(super) async fn reconnect(&mut self, queue: &mut WriteQueue) {
        // Otherwise a database that refuses at once, such as a full one, would be asked without a pause.
        tokio::time::sleep(TICK).await;
        queue.expire();
        while self.appender.is_none() {
            let appenders = Arc::clone(&self.parts.appenders);
            let lane = self.lane;
            let mut opening = pin!(appenders.open(lane));
            let opened = loop {
                tokio::select! {
                    opened = &mut opening => break opened,
                    () = tokio::time::sleep(TICK) => queue.expire(),
                }
            };
            match opened {
                Ok(appender) => self.appender = Some(appender),
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "the database is still away");
                    if let Some(outage) = error.outage() {
                        self.parts.health.failed(self.lane, outage);
                        queue.outage = Some(outage);
                    }
                    tokio::time::sleep(TICK).await;
                    queue.expire();
                    if queue.is_empty() {
                        // Nothing waits: the next emit tries again.
                        return;
                    }
                }
            }
        }
    }

    /// Determines whether a batch whose commit got no answer is stored, and where. Returns only when that is known.
    pub(super) async fn resolve(
        &mut self,
        plan: &Plan,
        requests: &mut [AppendRequest],
        queue: &mut WriteQueue,
    ) -> Option<Committed> {
        loop {
            let appenders = Arc::clone(&self.parts.appenders);
            let (lane, least) = (self.lane, self.parts.gate.published(self.lane));
            let mut resolving = pin!(async {
                let mut appender = appenders.open(lane).await?;
                let committed = appender.resolve(&plan.batch, least).await?;
                Ok::<_, store::Error>((appender, committed))
            });
            let answer_by = Instant::now() + ANSWER_MAX;
            let found = loop {
                tokio::select! {
                    found = &mut resolving => break Some(found),
                    () = tokio::time::sleep(TICK) => {
                        queue.expire();
                        give_up(requests);
                        if Instant::now() > answer_by {
                            break None;
                        }
                    }
                }
            };
            match found {
                Some(Ok((appender, committed))) => {
                    self.appender = Some(appender);
                    tracing::info!(stored = committed.is_some(), "commit outcome resolved");
                    return committed;
                }
                Some(Err(_)) | None => tokio::time::sleep(TICK).await,
            }
            queue.expire();
            give_up(requests);
        }
    }
}

impl Lane {
    /// Reconciles the history with a database that is behind what readers were shown.
    pub(super) async fn reconcile_history(&mut self, queue: &mut WriteQueue) {
        self.appender = None;
        if self.parts.forks.reconcile().await.is_err() {
            tokio::time::sleep(TICK).await;
            queue.expire();
        }
    }
}

/// Answers clients that have waited long enough that the outcome is unknown.
fn give_up(requests: &mut [AppendRequest]) {
    for request in requests.iter_mut().filter(|request| request.arrived.elapsed() > ANSWER_MAX) {
        request.answer(Err(EmitError::OutcomeUnknown));
    }
}
