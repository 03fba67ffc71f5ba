//! The end of a connection: writes in progress are completed, and returned runs are released.

use std::{collections::HashMap, time::Duration};

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures::{SinkExt as _, StreamExt as _, stream::SplitStream};
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
    /// Closes the connection, after the writes in progress.
    pub(super) async fn end(mut self, over: Over, stream: &mut SplitStream<WebSocket>) {
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
        // Events sent before the end are answered, so that the runner need not send them again.
        let grace = Instant::now() + Duration::from_secs(2);
        while let Ok(Some(Ok(outcome))) = tokio::time::timeout_at(grace, self.work.join_next()).await {
            if self.after_end(outcome).await.is_err() {
                return;
            }
        }
        _ = self.put(Message::Close(Some(left_over))).await;
        self.work.abort_all();
        (self.held, self.room) = (HashMap::new(), None);
        // Reads until the peer closes as well (RFC 6455 §7.1.1): closing with unread bytes resets the connection, and
        // the peer may not see the reason.
        let close = async {
            _ = self.sink.close().await;
            while let Some(Ok(message)) = stream.next().await {
                match message {
                    Message::Text(text) => drop(self.peer.intake.message(text.len())),
                    Message::Binary(bytes) => drop(self.peer.intake.message(bytes.len())),
                    Message::Ping(bytes) | Message::Pong(bytes) => self.peer.intake.control(bytes.len()),
                    Message::Close(_) => {}
                }
            }
        };
        _ = tokio::time::timeout(Duration::from_secs(1), close).await;
    }

    /// Like [`Connection::after`], without starting anything.
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
