//! Delivery of one reply: from the run that ended, into the session's log, to the user who asked.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Channels, free_places, lease,
    telegram::{self, Target},
};
use crate::{
    domain::{
        id::{RunId, Seq},
        json::Json,
        limits::{LOGGED_WAIT_MS_MAX, LOGGING_PLACES, REPLY_ATTEMPTS_MAX, REPLY_PAUSE_S_MAX, REPLY_TRY_MS_MAX},
        principal::OwnerId,
        run::Status,
        session::{LogLine, answer, inbound::ChatId, said},
    },
    store::{self, outbox::PendingReply, runs::RunRecord},
    timeline::follow::{StreamItem, StreamOptions},
};

/// Sent to a user when the run has no answer.
const FAILED: &str = "Something went wrong and there is no answer.";
const CANCELLED: &str = "This was cancelled before there was an answer.";

/// The state of a run when the wait for it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEnd {
    pub status: Status,
    /// Set if the run has completed.
    pub response: Option<String>,
}

/// The result of an attempt to deliver a reply.
enum DeliveryResult {
    Done,
    /// It only had to be logged, and this is recorded.
    Logged,
    /// It can never be delivered.
    Refused(String),
    /// To be retried after a while; the other side may have specified how long, in seconds.
    Again {
        reason: String,
        after_s: Option<i64>,
    },
}

impl Channels {
    /// Waits at most `at_most` until the run has ended, and then until its answer is in the session's log.
    pub async fn wait(&self, owner: &OwnerId, run: RunId, at_most: Duration) -> Result<Option<RunEnd>, store::Error> {
        let ended = tokio::time::timeout(at_most, self.until_end(owner, run)).await;
        if matches!(ended, Ok(Ok(true))) {
            self.until_logged(owner, run).await;
        }
        let Some(record) = self.shared.timeline.run(owner, run).await? else { return Ok(None) };
        let is_done = record.head.status == Status::Completed;
        let response = if is_done { self.answer_of(owner, &record).await? } else { None };
        Ok(Some(RunEnd { status: record.head.status, response }))
    }

    /// Waits until the run has ended; `false` if the server shuts down first.
    async fn until_end(&self, owner: &OwnerId, run: RunId) -> Result<bool, store::Error> {
        let Some(context) = self.shared.timeline.context(owner, run).await? else { return Ok(false) };
        let options = StreamOptions::default();
        let histories = self.shared.timeline.histories();
        let mut follower = self.shared.timeline.follow_run(context, Seq::ZERO, histories, options);
        while let Some(signals) = follower.next().await {
            for signal in signals {
                match signal {
                    StreamItem::End { .. } => return Ok(true),
                    StreamItem::Draining | StreamItem::Reset => return Ok(false),
                    StreamItem::Frame(_)
                    | StreamItem::Snapshot(_)
                    | StreamItem::Stalled(_)
                    | StreamItem::CaughtUp { .. }
                    | StreamItem::Gap { .. } => {}
                }
            }
        }
        Ok(false)
    }

    /// Ensures that the answer of an ended run is in the log: delivers it, or waits for the process that does.
    async fn until_logged(&self, owner: &OwnerId, run: RunId) {
        let (began, mut pause) = (Instant::now(), Duration::from_millis(1));
        loop {
            for pending in self.claim_replies(Some(run), false, 1).await {
                let channels = self.clone();
                let _ = self.shared.tasks.spawn(async move { channels.attempt(&pending).await }).await;
            }
            let is_answered = self.store().outbox().is_answered(owner, run).await;
            if !matches!(is_answered, Ok(false)) || began.elapsed() > Duration::from_millis(LOGGED_WAIT_MS_MAX) {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(64));
        }
    }

    /// Starts delivering all replies that are due; returns how long the last query took.
    pub(super) async fn look_into_outbox(&self) -> Duration {
        loop {
            let mut room = free_places(&self.shared.giving).await;
            let sends = room.num_permits().saturating_sub(LOGGING_PLACES as usize);
            let can_send = sends > 0 && self.telegram().is_some();
            let (began, most) = (Instant::now(), if can_send { sends } else { room.num_permits() });
            let claimed = self.claim_replies(None, can_send, most).await;
            if claimed.is_empty() {
                return began.elapsed();
            }
            for pending in claimed {
                let (channels, place) = (self.clone(), room.split(1));
                // A tracked task outside this loop, so that it finishes what it began and delays nothing else.
                self.shared.tasks.spawn(async move {
                    channels.attempt(&pending).await;
                    let was_full = channels.shared.giving.available_permits() <= LOGGING_PLACES as usize;
                    drop(place);
                    if was_full {
                        channels.shared.outbox.notify_one();
                    }
                });
            }
        }
    }

    async fn claim_replies(&self, only: Option<RunId>, can_send: bool, most: usize) -> Vec<PendingReply> {
        let times = (self.now(), self.lease_until());
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let claimed = self.store().outbox().claim(only, can_send, times, most).await;
        claimed.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "reading the outbox failed");
            Vec::new()
        })
    }

    /// Delivers a reply, unless another worker takes it over.
    async fn attempt(&self, pending: &PendingReply) {
        let renew = || self.store().deliveries().renew_reply(pending, self.lease_until());
        if lease::keep(self.shared.lease, Box::pin(self.give_and_note(pending)), renew).await.is_none() {
            tracing::info!(reply_no = pending.reply_no, "lease lost: reply taken over by another worker");
        }
    }

    /// Delivers a reply and records the result.
    async fn give_and_note(&self, pending: &PendingReply) {
        let (store, now) = (self.store(), self.now());
        let given = Box::pin(self.give(pending)).await;
        let noted = match given {
            Ok(DeliveryResult::Logged) => Ok(()),
            Ok(DeliveryResult::Done) => store.outbox().finish(pending, None, now).await,
            Ok(DeliveryResult::Refused(reason)) => {
                tracing::warn!(reason, reply_no = pending.reply_no, "reply not deliverable");
                store.outbox().finish(pending, Some(&reason), now).await
            }
            Ok(DeliveryResult::Again { reason, .. }) if pending.attempts >= REPLY_ATTEMPTS_MAX => {
                metrics::counter!("runreel_replies_given_up_total").increment(1);
                tracing::error!(reason, reply_no = pending.reply_no, "reply abandoned");
                store.outbox().finish(pending, Some(&reason), now).await
            }
            Ok(DeliveryResult::Again { reason, after_s }) => {
                let pause_s = after_s.unwrap_or_else(|| 1 << pending.attempts.clamp(0, 10)).clamp(0, REPLY_PAUSE_S_MAX);
                tracing::info!(reason, pause_s, reply_no = pending.reply_no, "reply not delivered; will retry");
                store.outbox().reschedule(pending, self.now() + TimeDelta::seconds(pause_s)).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = noted {
            // It is retried when the lease has lapsed.
            tracing::warn!(error = &error as &dyn std::error::Error, "outcome of a reply not stored");
        }
    }

    async fn give(&self, pending: &PendingReply) -> Result<DeliveryResult, store::Error> {
        let record = match pending.run_id {
            Some(run) => self.shared.timeline.run(&pending.owner_id, run).await?,
            None => None,
        };
        let Some(text) = self.text_of(pending, record.as_ref()).await? else {
            return Ok(DeliveryResult::Refused("the run is gone, or has no answer".to_owned()));
        };
        if let Some(thread) = pending.thread_id.as_ref().filter(|_| !pending.is_logged) {
            let now = self.now();
            // The line is the same on every attempt, however late: its time is the end of the run.
            let at = record.and_then(|record| record.head.ended_at).unwrap_or(now);
            let line = LogLine::of_agent(&pending.channel, &pending.user_id, &text, at).to_line();
            self.shared.log.write(&pending.owner_id, thread, line.clone(), pending.attempts > 1).await;
            self.store().outbox().note_logged(pending, (thread, &line), now).await?;
            if pending.target.is_none() {
                return Ok(DeliveryResult::Logged);
            }
        }
        let Some(target) = &pending.target else { return Ok(DeliveryResult::Done) };
        let Some(telegram) = self.telegram() else {
            return Ok(DeliveryResult::Again { reason: "Telegram is not configured".to_owned(), after_s: None });
        };
        let (began, parts) = (Instant::now(), telegram::text::split(&text));
        let mut target = match Target::read(target) {
            Ok(target) => target,
            Err(error) => return Ok(DeliveryResult::Refused(error)),
        };
        let from = target.chat_id;
        for (n, part) in parts.iter().enumerate().skip(usize::try_from(pending.parts_sent).unwrap_or(0)) {
            // Other replies wait for this permit, and a shutdown waits for the attempt to end.
            if began.elapsed() > Duration::from_millis(REPLY_TRY_MS_MAX) {
                return Ok(DeliveryResult::Again { reason: "sending takes too long".to_owned(), after_s: Some(0) });
            }
            match telegram.send(&mut target, part, n == 0).await {
                Ok(()) => self.store().outbox().note_sent(pending, i32::try_from(n + 1).unwrap_or(i32::MAX)).await?,
                Err(error) if error.is_retryable => {
                    return Ok(DeliveryResult::Again { reason: error.reason, after_s: error.after_s });
                }
                Err(error) => return Ok(DeliveryResult::Refused(error.reason)),
            }
        }
        if target.has_moved {
            let chat = |id: i64| ChatId::trusted(&id.to_string());
            self.moved(&pending.owner_id, &pending.channel, &chat(from), &chat(target.chat_id)).await?;
        }
        Ok(DeliveryResult::Done)
    }

    /// The text of the reply.
    async fn text_of(
        &self,
        pending: &PendingReply,
        record: Option<&RunRecord>,
    ) -> Result<Option<String>, store::Error> {
        if let Some(body) = &pending.body {
            return Ok(Some(body.clone()));
        }
        let Some(record) = record else { return Ok(None) };
        match record.head.status {
            Status::Completed => self.answer_of(&pending.owner_id, record).await,
            Status::Failed => Ok(Some(FAILED.to_owned())),
            Status::Cancelled => Ok(Some(CANCELLED.to_owned())),
            Status::Queued | Status::Running | Status::Waiting | Status::Interrupted => Ok(None),
        }
    }

    /// Step 10: the run's answer.
    async fn answer_of(&self, owner: &OwnerId, record: &RunRecord) -> Result<Option<String>, store::Error> {
        let value = |json: &Json| serde_json::from_str::<Value>(json.as_str()).ok();
        let output = record.head.output.as_ref().and_then(value);
        if let Some(text) = output.as_ref().and_then(said) {
            return Ok(Some(text));
        }
        let message = self.store().outbox().last_message(owner, record.context.run_id).await?;
        Ok(answer(output.as_ref(), message.as_ref().and_then(value).as_ref()))
    }
}
