//! A connection ends: what is on its way into the log is brought there, and what was given back is released.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message};
use futures::SinkExt as _;
use tokio::time::Instant;

use super::{Connection, Over, Step};
use crate::{
    domain::{
        limits::RUNNER_WAIT_MS_MAX,
        runner::{Ack, ToRunner},
    },
    runners::work::{End, TaskEnd},
};

impl Connection {
    /// Says good-bye, after what is on its way into the log.
    pub(super) async fn end(mut self, over: Over) {
        let left_over = match over {
            Over::Gone => return,
            Over::GivenBack => {
                let wait = Duration::from_millis(RUNNER_WAIT_MS_MAX);
                let rest = async { while self.work.join_next().await.is_some() {} };
                _ = tokio::time::timeout(wait, rest).await;
                for held in self.held.values() {
                    if let Err(error) = self.hub.dispatch.release(held.job.lease_id).await {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "job not released; its lease must expire first"
                        );
                    }
                }
                return;
            }
            Over::Close(code, reason) => CloseFrame { code, reason: reason.into() },
        };
        // What was sent before the end is worth an answer: the runner then need not send it again.
        let grace = Instant::now() + Duration::from_secs(2);
        while let Ok(Some(Ok(outcome))) = tokio::time::timeout_at(grace, self.work.join_next()).await {
            if self.after_end(outcome).await.is_err() {
                return;
            }
        }
        _ = self.put(Message::Close(Some(left_over))).await;
        _ = tokio::time::timeout(Duration::from_secs(1), self.sink.close()).await;
    }

    /// As [`Connection::after`], without beginning anything.
    async fn after_end(&mut self, outcome: TaskEnd) -> Step {
        let run_id = outcome.run_id;
        if matches!(outcome.end, End::Stored | End::Left) {
            self.say(&ToRunner::Ack(Ack { run_id, n: outcome.n, last_seq: outcome.last_seq.get() })).await?;
            if outcome.status.is_terminal() {
                self.finish(run_id).await;
            }
        }
        Ok(())
    }
}
