//! The way of one answer: out of the run that ended, into the session's log, to whoever asked.

use std::time::Duration;

use chrono::TimeDelta;
use futures::StreamExt as _;
use serde_json::Value;
use tokio::time::Instant;

use super::{AT_ONCE, Channels, telegram};
use crate::{
    domain::{
        event::TypeFilter,
        id::{RunId, Seq},
        json::Json,
        limits::{DELIVERY_LEASE_MS, DELIVERY_ROWS, REPLY_ATTEMPTS_MAX, REPLY_PAUSE_S_MAX},
        principal::OwnerId,
        run::Status,
        session::{LogLine, answer},
    },
    store::{self, outbox::Owed, runs::RunRecord},
    timeline::follow::{Signal, Wishes},
};

/// What a user is told when the run has no answer to give.
const FAILED: &str = "Something went wrong and there is no answer.";
const CANCELLED: &str = "This was cancelled before there was an answer.";

/// How a run stands when the wait for it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub status: Status,
    /// Once it has ended well.
    pub response: Option<String>,
}

/// What came of trying to give an answer.
enum Given {
    Done,
    /// It can never be given.
    Refused(String),
    /// Again after a while; the other side may say how long, in seconds.
    Again {
        reason: String,
        after_s: Option<i64>,
    },
}

impl Channels {
    /// Waits until the run has ended, at most so long, and sees to it that its answer stands in the session's log.
    pub async fn wait(&self, owner: &OwnerId, run: RunId, at_most: Duration) -> Result<Option<Outcome>, store::Error> {
        let ended = tokio::time::timeout(at_most, self.until_end(owner, run)).await;
        if matches!(ended, Ok(Ok(true))) {
            self.look_into_outbox(Some(run)).await;
        }
        let Some(record) = self.shared.timeline.run(owner, run).await? else { return Ok(None) };
        let is_done = record.head.status == Status::Completed;
        let response = if is_done { self.answer_of(owner, &record).await? } else { None };
        Ok(Some(Outcome { status: record.head.status, response }))
    }

    /// Whether the run has ended; `false` when the server is going down.
    async fn until_end(&self, owner: &OwnerId, run: RunId) -> Result<bool, store::Error> {
        let Some(context) = self.shared.timeline.context(owner, run).await? else { return Ok(false) };
        let wishes = Wishes { filter: TypeFilter::default(), tokens: false };
        let mut follower = self.shared.timeline.follow_run(context, Seq::ZERO, wishes);
        while let Some(signals) = follower.next().await {
            for signal in signals {
                match signal {
                    Signal::End { .. } => return Ok(true),
                    Signal::Draining => return Ok(false),
                    Signal::Frame(_) | Signal::Snapshot(_) | Signal::CaughtUp { .. } | Signal::Gap { .. } => {}
                }
            }
        }
        Ok(false)
    }

    /// Looks into the outbox when the run ends.
    pub(super) fn watch(&self, owner: &OwnerId, run: RunId) {
        // Without a permit the answer is found by looking.
        let Ok(permit) = std::sync::Arc::clone(&self.shared.watches).try_acquire_owned() else { return };
        let (channels, owner) = (self.clone(), owner.clone());
        self.shared.tasks.spawn(async move {
            let _permit = permit;
            if let Ok(true) = channels.until_end(&owner, run).await {
                channels.shared.outbox.notify_one();
            }
        });
    }

    /// Gives all answers that can be given now, or the one of a run.
    pub(super) async fn look_into_outbox(&self, only: Option<RunId>) {
        loop {
            let now = self.shared.steps.clock().now();
            let owed =
                match self.shared.steps.store().take_owed(only, self.telegram().is_some(), now, DELIVERY_ROWS).await {
                    Ok(owed) => owed,
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "the outbox was not looked into");
                        return;
                    }
                };
            if owed.is_empty() {
                return;
            }
            futures::stream::iter(owed)
                .for_each_concurrent(AT_ONCE, |owed| async move {
                    // Tracked and not part of whoever looks, so that it ends what it began.
                    let channels = self.clone();
                    let _ = self.shared.tasks.spawn(async move { channels.settle(&owed).await }).await;
                })
                .await;
        }
    }

    /// Gives an answer and notes what came of it.
    async fn settle(&self, owed: &Owed) {
        let (store, now) = (self.shared.steps.store(), self.shared.steps.clock().now());
        let given = Box::pin(self.give(owed)).await;
        let noted = match given {
            Ok(Given::Done) => store.finish_reply(owed, None, now).await,
            Ok(Given::Refused(reason)) => {
                tracing::warn!(reason, reply_no = owed.reply_no, "an answer cannot be delivered");
                store.finish_reply(owed, Some(&reason), now).await
            }
            Ok(Given::Again { reason, .. }) if owed.attempts >= REPLY_ATTEMPTS_MAX => {
                metrics::counter!("runreel_replies_given_up_total").increment(1);
                tracing::error!(reason, reply_no = owed.reply_no, "an answer was given up");
                store.finish_reply(owed, Some(&reason), now).await
            }
            Ok(Given::Again { reason, after_s }) => {
                let pause_s = after_s.unwrap_or_else(|| 1 << owed.attempts.clamp(0, 10)).clamp(0, REPLY_PAUSE_S_MAX);
                tracing::info!(reason, pause_s, reply_no = owed.reply_no, "an answer will be tried again");
                store.put_off(owed, self.shared.steps.clock().now() + TimeDelta::seconds(pause_s)).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = noted {
            // The lease lapses, and then it is tried again.
            tracing::warn!(error = &error as &dyn std::error::Error, "what came of an answer was not noted");
        }
    }

    async fn give(&self, owed: &Owed) -> Result<Given, store::Error> {
        let steps = &self.shared.steps;
        let Some(text) = self.text_of(owed).await? else {
            return Ok(Given::Refused("the run is gone, or has no answer".to_owned()));
        };
        if let Some(thread) = owed.thread_id.as_ref().filter(|_| !owed.is_logged) {
            let now = steps.clock().now();
            // The same line at every try, however late: its time is the end of the run.
            let at = self.ended_at(owed).await?.unwrap_or(now);
            let line = LogLine::of_agent(&owed.channel, &owed.user_id, &text, at).to_line();
            steps.write(&owed.owner_id, thread, line, owed.attempts > 1).await;
            steps.store().note_logged(owed, now).await?;
        }
        let Some(target) = &owed.target else { return Ok(Given::Done) };
        let Some(telegram) = self.telegram() else {
            return Ok(Given::Again { reason: "Telegram is not set up here".to_owned(), after_s: None });
        };
        let began = Instant::now();
        let parts = telegram::text::split(&text);
        for (n, part) in parts.iter().enumerate().skip(usize::try_from(owed.parts_sent).unwrap_or(0)) {
            // Half of the lease, so that nobody else begins while this goes on.
            if began.elapsed() > Duration::from_millis(DELIVERY_LEASE_MS.unsigned_abs() / 2) {
                return Ok(Given::Again { reason: "it takes long".to_owned(), after_s: Some(0) });
            }
            match telegram.send(target, part, n == 0).await {
                Ok(()) => steps.store().note_sent(owed, i32::try_from(n + 1).unwrap_or(i32::MAX)).await?,
                Err(trouble) if trouble.is_passing => {
                    return Ok(Given::Again { reason: trouble.reason, after_s: trouble.after_s });
                }
                Err(trouble) => return Ok(Given::Refused(trouble.reason)),
            }
        }
        Ok(Given::Done)
    }

    async fn ended_at(&self, owed: &Owed) -> Result<Option<chrono::DateTime<chrono::Utc>>, store::Error> {
        let Some(run) = owed.run_id else { return Ok(None) };
        Ok(self.shared.timeline.run(&owed.owner_id, run).await?.and_then(|record| record.head.ended_at))
    }

    /// What is to be said.
    async fn text_of(&self, owed: &Owed) -> Result<Option<String>, store::Error> {
        if let Some(body) = &owed.body {
            return Ok(Some(body.clone()));
        }
        let Some(run) = owed.run_id else { return Ok(None) };
        let Some(record) = self.shared.timeline.run(&owed.owner_id, run).await? else { return Ok(None) };
        match record.head.status {
            Status::Completed => self.answer_of(&owed.owner_id, &record).await,
            Status::Failed => Ok(Some(FAILED.to_owned())),
            Status::Cancelled => Ok(Some(CANCELLED.to_owned())),
            Status::Queued | Status::Running | Status::Waiting | Status::Interrupted => Ok(None),
        }
    }

    /// Step 10: what the run answers.
    async fn answer_of(&self, owner: &OwnerId, record: &RunRecord) -> Result<Option<String>, store::Error> {
        let value = |json: &Json| serde_json::from_str::<Value>(json.as_str()).ok();
        let message = self.shared.steps.store().last_message(owner, record.context.run_id).await?;
        Ok(answer(record.head.output.as_ref().and_then(value).as_ref(), message.as_ref().and_then(value).as_ref()))
    }
}
