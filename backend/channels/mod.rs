//! Channels: how people talk with agents.
//!
//! A message is taken into the inbox, routed, and answered out of the outbox. Both are tables, so a crash at any
//! moment loses nothing: what was begun is taken up again, with the same ids, and comes to the same end.
//!
//! Invariants kept here: a message is acknowledged only when it is in the inbox; it starts at most one run; an answer
//! that is owed is given at least once, and each part of it is noted as soon as the other side has it.
//!
//! Start reading at [`Channels::receive`], then [`router`] (one message) and [`replies`] (one answer).

pub mod images;
pub mod replies;
pub mod router;
pub mod telegram;

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::telegram::{FileId, Telegram};
use crate::{
    config::channels::{ChannelConfig, Channels as Configs},
    domain::{
        id::RunId,
        json::Json,
        limits::{DELIVERY_ATTEMPTS_MAX, DELIVERY_POLL_MS, DELIVERY_ROWS},
        principal::OwnerId,
        session::{
            Reason,
            inbound::{ChannelName, Inbound},
        },
    },
    sessions::steps::{Routed, Start, StartError, Started, Steps},
    store::{
        self,
        inbox::{Arrival, Arrived, Done, Taken},
    },
    timeline::Timeline,
};

/// Messages worked on at once, of those that were taken up from the inbox.
const AT_ONCE: usize = 16;
/// Runs whose end is listened for; the others are found by looking.
const WATCHES_MAX: usize = 4_096;
/// How long done messages are remembered, to know them again.
const REMEMBERED: TimeDelta = TimeDelta::days(30);
/// How often what was remembered long enough is forgotten.
const FORGET_EVERY: Duration = Duration::from_mins(10);
/// Rows forgotten in one look.
const FORGET_ROWS: i64 = 5_000;

/// What lies in the inbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope {
    pub inbound: Inbound,
    /// An image that is still to be fetched.
    pub photo: Option<FileId>,
    pub target: Option<Json>,
}

/// What a sender is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    Routed(Started),
    Duplicate { router_run_id: RunId },
}

/// Why a message was not carried out now.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not in the inbox.
    #[error(transparent)]
    NotTaken(store::Error),
    /// It is in the inbox and will be carried out.
    #[error("the message was taken and will be routed later: {0}")]
    Later(#[source] StartError),
}

/// A handle on the channels. Cheap to clone.
#[derive(Clone)]
pub struct Channels {
    shared: Arc<Shared>,
}

struct Shared {
    timeline: Timeline,
    configs: Configs,
    steps: Steps,
    start: Arc<dyn Start>,
    telegram: Option<Telegram>,
    tasks: TaskTracker,
    inbox: Notify,
    outbox: Notify,
    watches: Arc<Semaphore>,
}

impl Channels {
    pub fn new(
        timeline: Timeline,
        configs: Configs,
        (steps, start): (Steps, Arc<dyn Start>),
        telegram: Option<Telegram>,
        tasks: TaskTracker,
    ) -> Self {
        let watches = Arc::new(Semaphore::new(WATCHES_MAX));
        let (inbox, outbox) = (Notify::new(), Notify::new());
        Self { shared: Arc::new(Shared { timeline, configs, steps, start, telegram, tasks, inbox, outbox, watches }) }
    }

    pub fn config(&self, channel: &ChannelName) -> Option<&Arc<ChannelConfig>> {
        self.shared.configs.get(channel)
    }

    pub fn steps(&self) -> &Steps {
        &self.shared.steps
    }

    /// Telegram, when it is set up.
    pub fn telegram(&self) -> Option<&Telegram> {
        self.shared.telegram.as_ref()
    }

    /// Takes a message in and routes it. The work goes on when the caller leaves.
    pub async fn receive(&self, owner: &OwnerId, channel: &ChannelName, inbound: Inbound) -> Result<Receipt, Error> {
        let envelope = Envelope { inbound, photo: None, target: None };
        let taken = match self.arrive(owner, channel, &envelope, false).await.map_err(Error::NotTaken)? {
            Arrived::Known { router_run_id } => return Ok(Receipt::Duplicate { router_run_id }),
            Arrived::Taken(taken) => taken,
        };
        let channels = self.clone();
        let work = self.shared.tasks.spawn(async move { channels.carry_out(*taken).await });
        let done = work.await.unwrap_or_else(|_| Err(StartError::Other("routing a message failed".to_owned())));
        done.map(Receipt::Routed).map_err(Error::Later)
    }

    /// Takes a message in and leaves the rest to [`Channels::run`].
    pub async fn leave(&self, owner: &OwnerId, channel: &ChannelName, envelope: &Envelope) -> Result<(), store::Error> {
        self.arrive(owner, channel, envelope, true).await?;
        self.shared.inbox.notify_one();
        Ok(())
    }

    async fn arrive(
        &self,
        owner: &OwnerId,
        channel: &ChannelName,
        envelope: &Envelope,
        for_later: bool,
    ) -> Result<Arrived, store::Error> {
        let steps = &self.shared.steps;
        let id = || RunId::trusted(steps.ids().uuid());
        let arrival = Arrival {
            owner,
            channel,
            message_id: envelope.inbound.message_id.as_ref(),
            chat_id: &envelope.inbound.chat_id,
            content: Json::of(envelope),
            router_run_id: id(),
            run_id: id(),
            now: steps.clock().now(),
            for_later,
        };
        steps.store().arrive(arrival).await
    }

    /// Carries out a message that was taken up, and gives it back when it cannot be done now.
    async fn carry_out(&self, taken: Taken) -> Result<Started, StartError> {
        let (owner, inbound_no, attempts) = (taken.owner_id.clone(), taken.inbound_no, taken.attempts);
        let steps = &self.shared.steps;
        let done = Box::pin(self.route(&taken)).await;
        let Err(error) = &done else { return done };
        tracing::warn!(error = error as &dyn std::error::Error, attempts, "a message could not be routed yet");
        let given_up = attempts >= DELIVERY_ATTEMPTS_MAX || error.is_lasting();
        let kept = if given_up {
            metrics::counter!("runreel_messages_given_up_total").increment(1);
            tracing::error!(router_run_id = %taken.router_run_id, "a message was given up");
            self.shared.start.give_up(&owner, taken.router_run_id, &error.to_string()).await;
            steps.store().finish_inbound(&owner, inbound_no, Done::Failed).await
        } else {
            let pause = TimeDelta::seconds(1 << attempts.clamp(0, 8));
            steps.store().release_inbound(&owner, inbound_no, steps.clock().now() + pause).await
        };
        if let Err(error) = kept {
            // Its lease will lapse.
            tracing::warn!(error = &error as &dyn std::error::Error, "a message could not be given back");
        }
        done
    }

    async fn route(&self, taken: &Taken) -> Result<Started, StartError> {
        let shared = &self.shared;
        let store = shared.steps.store();
        let routed = self.read(taken).await?;
        let started = shared.start.start(routed.clone()).await?;
        let done = match &started {
            Started::Accepted { run_id, .. } => {
                if routed.target.is_some() {
                    self.watch(&routed.owner, *run_id);
                }
                Done::Accepted
            }
            Started::Filtered { reason, .. } => Done::Filtered(*reason),
            Started::Held { .. } => {
                shared.steps.explain(&routed, Reason::CodeWanted).await?;
                shared.outbox.notify_one();
                return Ok(started);
            }
            Started::Released { .. } => Done::Filtered(Reason::CodeAccepted),
        };
        if let Done::Filtered(reason) = done {
            shared.steps.explain(&routed, reason).await?;
            shared.outbox.notify_one();
        }
        store.finish_inbound(&routed.owner, routed.inbound_no, done).await?;
        let Started::Released { inbound_no: Some(held_no), .. } = &started else { return Ok(started) };
        let (owner, channel, user) = (&routed.owner, &routed.channel, &routed.inbound.user_id);
        if let Some(held) = store.take_held(owner, *held_no, shared.steps.clock().now()).await? {
            let released = Box::pin(self.carry_out(held)).await?;
            store.let_go(owner, channel, user).await?;
            return Ok(released);
        }
        store.let_go(owner, channel, user).await?;
        Ok(started)
    }

    /// What lies in the inbox, with the image fetched that was still to be.
    async fn read(&self, taken: &Taken) -> Result<Routed, StartError> {
        let envelope: Envelope = serde_json::from_str(taken.content.as_str())
            .map_err(|error| StartError::Other(format!("the inbox holds something else: {error}")))?;
        let gone = || StartError::Other(format!("the channel {} is not configured any more", taken.channel));
        let config = Arc::clone(self.config(&taken.channel).ok_or_else(gone)?);
        let mut inbound = envelope.inbound;
        if let (Some(photo), Some(telegram)) = (&envelope.photo, self.telegram()) {
            match telegram.fetch(photo).await {
                Ok(image) => inbound.image = Some(image),
                Err(error) if error.is_passing && taken.attempts < 3 => return Err(StartError::Other(error.reason)),
                Err(error) => {
                    tracing::warn!(reason = error.reason, "an image could not be fetched");
                    let text = inbound.text.take().unwrap_or_default();
                    inbound.text = Some(format!("{text} (an image could not be fetched)").trim_start().to_owned());
                }
            }
        }
        Ok(Routed {
            owner: taken.owner_id.clone(),
            channel: taken.channel.clone(),
            config,
            inbound,
            inbound_no: taken.inbound_no,
            router_run_id: taken.router_run_id,
            run_id: taken.run_id,
            attempts: taken.attempts,
            target: envelope.target,
        })
    }

    /// Looks into the inbox and the outbox, when something may be there and now and then, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let every = || {
            let mut every = tokio::time::interval(Duration::from_millis(DELIVERY_POLL_MS));
            every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            every
        };
        let inbox = async {
            let mut every = every();
            loop {
                tokio::select! { _ = every.tick() => {}, () = self.shared.inbox.notified() => {} }
                self.look_into_inbox().await;
            }
        };
        let outbox = async {
            let mut every = every();
            loop {
                tokio::select! { _ = every.tick() => {}, () = self.shared.outbox.notified() => {} }
                self.look_into_outbox(None).await;
            }
        };
        let forget = async {
            let mut every = tokio::time::interval(FORGET_EVERY);
            loop {
                every.tick().await;
                let before = self.shared.steps.clock().now() - REMEMBERED;
                if let Err(error) = self.shared.steps.store().forget_deliveries(before, FORGET_ROWS).await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "old messages were not forgotten");
                }
            }
        };
        Box::pin(stop.run_until_cancelled(async { tokio::join!(inbox, outbox, forget) })).await;
    }

    async fn look_into_inbox(&self) {
        use futures::StreamExt as _;
        loop {
            let now = self.shared.steps.clock().now();
            let taken = match self.shared.steps.store().take_waiting(now, DELIVERY_ROWS).await {
                Ok(taken) => taken,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the inbox was not looked into");
                    return;
                }
            };
            let count = taken.len();
            futures::stream::iter(taken)
                .for_each_concurrent(AT_ONCE, |taken| async {
                    // Tracked and not part of this loop, so that a shutdown waits for it.
                    let channels = self.clone();
                    let work = self.shared.tasks.spawn(async move { channels.carry_out(taken).await });
                    let _ = work.await;
                })
                .await;
            // Another of the same chat may have come to the front.
            if count == 0 {
                return;
            }
        }
    }
}
