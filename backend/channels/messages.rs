//! Processing of one message: from the inbox, through the router, to its run or to the reason for starting none.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use tokio::time::Instant;

use super::{
    Channels, Envelope, Receipt, free_places, lease,
    router::{Message, Outcome, RouteError},
};
use crate::{
    domain::{
        id::RunId,
        limits::{DELIVERY_ATTEMPTS_MAX, DUPLICATE_WAIT_MS_MAX},
        principal::OwnerId,
        session::Reason,
    },
    store::{
        self,
        inbox::{ClaimedMessage, Delivery, DeliveryState, Done},
        outbox::{NewReply, Promised},
    },
};

/// Shortest and longest pause between two polls of a delivery in progress, milliseconds.
const POLL_PAUSES_MS: (u64, u64) = (5, 160);

/// The outcome of a message, and the router's run that recorded it.
#[derive(Clone, Debug)]
pub(super) struct Routed {
    pub router_run_id: RunId,
    pub outcome: Outcome,
}

impl Channels {
    /// Routes a claimed message, and releases it if it cannot be routed now.
    pub(super) async fn process(&self, claimed: ClaimedMessage) -> Result<Routed, RouteError> {
        let (store, attempts) = (self.store(), claimed.attempts);
        let renew = || store.deliveries().renew_inbound(&claimed, self.lease_until());
        let Some(done) = lease::keep(self.shared.lease, Box::pin(self.route(&claimed)), renew).await else {
            tracing::info!(router_run_id = %claimed.router_run_id, "lease lost: message taken over by another worker");
            return Err(RouteError::Later("lease lost".to_owned()));
        };
        let Err(error) = &done else { return done };
        tracing::warn!(error = error as &dyn std::error::Error, attempts, "message not routed; will retry");
        let is_given_up = attempts >= DELIVERY_ATTEMPTS_MAX || matches!(error, RouteError::Failed(_));
        let kept = if is_given_up {
            metrics::counter!("runreel_messages_given_up_total").increment(1);
            tracing::error!(router_run_id = %claimed.router_run_id, "message abandoned");
            self.shared.router.give_up(&claimed, &error.to_string()).await;
            store.inbox().finish(&claimed, Done::Failed).await
        } else {
            let pause = TimeDelta::seconds(1 << attempts.clamp(0, 8));
            store.inbox().release(&claimed, self.now() + pause).await
        };
        if let Err(error) = kept {
            // The lease will lapse.
            tracing::warn!(error = &error as &dyn std::error::Error, "message not released");
        }
        done.map_err(|error| if is_given_up { RouteError::Failed(error.to_string()) } else { error })
    }

    async fn route(&self, claimed: &ClaimedMessage) -> Result<Routed, RouteError> {
        let store = self.store();
        let message = self.read(claimed).await?;
        let (owner, channel, user) = (&claimed.owner_id, &claimed.channel, message.inbound.user_id.clone());
        let target = message.target.clone();
        let outcome = self.shared.router.route(message).await?;
        if let (Some(body), Some(target)) = (outcome.reason().and_then(Reason::reply), &target) {
            let what = Promised::Text { inbound_no: claimed.inbound_no, body };
            store
                .outbox()
                .promise(NewReply { owner, channel, user_id: &user, what, target: Some(target), now: self.now() })
                .await?;
            self.shared.outbox.notify_one();
        }
        let done = match outcome.reason() {
            _ if outcome == Outcome::AwaitingCode => None,
            Some(reason) => Some(Done::Filtered(reason)),
            None => Some(Done::Accepted),
        };
        // The held message is claimed before its code is released: a crash in between repeats the code and loses
        // nothing.
        let held = match outcome {
            Outcome::Released { held_no: Some(held_no) } => {
                store.inbox().claim_held(owner, held_no, self.lease_until()).await?
            }
            _ => None,
        };
        if let Some(done) = done {
            store.inbox().finish(claimed, done).await?;
        }
        if let Outcome::Released { held_no: Some(_) } = outcome {
            store.codes().release(owner, channel, &user).await?;
        }
        match held {
            Some(held) => Box::pin(self.process(held)).await,
            None => Ok(Routed { router_run_id: claimed.router_run_id, outcome }),
        }
    }

    /// The receipt of a duplicate. If the original is still in progress, waits for it, at most
    /// [`DUPLICATE_WAIT_MS_MAX`].
    pub(super) async fn earlier(&self, owner: &OwnerId, mut known: Delivery) -> Result<Receipt, store::Error> {
        let (began, (mut pause_ms, pause_ms_max)) = (Instant::now(), POLL_PAUSES_MS);
        while known.stands == DeliveryState::Open && began.elapsed() < Duration::from_millis(DUPLICATE_WAIT_MS_MAX) {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            pause_ms = (pause_ms * 2).min(pause_ms_max);
            let Some(now) = self.store().inbox().state(owner, known.inbound_no).await? else { break };
            known = now;
        }
        let Delivery { router_run_id, run_id, stands, .. } = known;
        let context = match stands {
            DeliveryState::Accepted => self.shared.timeline.context(owner, run_id).await?,
            DeliveryState::Open | DeliveryState::NoRun => None,
        };
        let place = context.and_then(|run| run.session_id.clone().zip(run.thread_id.clone()));
        let accepted =
            |(session_id, thread_id)| Outcome::Accepted { run_id, session_id, thread_id, new_session: false };
        let outcome = Some(place.map_or(Outcome::Filtered { reason: Reason::Duplicate }, accepted));
        Ok(Receipt { router_run_id, outcome, is_duplicate: true, is_given_up: false })
    }

    /// Reads the message from its inbox row and fetches its image, if it has one not fetched yet.
    async fn read(&self, claimed: &ClaimedMessage) -> Result<Message, RouteError> {
        let envelope: Envelope = serde_json::from_str(claimed.content.as_str())
            .map_err(|error| RouteError::Later(format!("invalid message in the inbox: {error}")))?;
        let gone = || RouteError::Later(format!("the channel {} is no longer configured", claimed.channel));
        let config = Arc::clone(self.config(&claimed.channel).ok_or_else(gone)?);
        let (mut inbound, photos, target) = envelope.whole();
        for (photo, telegram) in photos.iter().filter_map(|photo| Some((photo, self.telegram()?))) {
            match telegram.fetch(photo).await {
                Ok(image) => inbound.show(image),
                Err(error) if error.is_retryable && claimed.attempts < 3 => {
                    return Err(RouteError::Later(error.reason));
                }
                Err(error) => {
                    tracing::warn!(reason = error.reason, "image not fetched");
                    let text = inbound.text.take().unwrap_or_default();
                    inbound.text = Some(format!("{text} (an image could not be fetched)").trim_start().to_owned());
                }
            }
        }
        Ok(Message {
            owner: claimed.owner_id.clone(),
            channel: claimed.channel.clone(),
            config,
            inbound,
            inbound_no: claimed.inbound_no,
            router_run_id: claimed.router_run_id,
            run_id: claimed.run_id,
            attempts: claimed.attempts,
            target,
        })
    }

    /// Claims waiting messages, as many as there are permits for, and processes them.
    pub(super) async fn look_into_inbox(&self) {
        loop {
            let mut room = free_places(&self.shared.routing).await;
            let times = (self.now(), self.lease_until());
            let most = i64::try_from(room.num_permits()).unwrap_or(i64::MAX);
            let waiting = match self.store().inbox().claim_waiting(times, most).await {
                Ok(waiting) => waiting,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "reading the inbox failed");
                    return;
                }
            };
            if waiting.is_empty() {
                return;
            }
            for claimed in waiting {
                let (channels, place) = (self.clone(), room.split(1));
                // A tracked task outside this loop, so that only a shutdown waits for it.
                self.shared.tasks.spawn(async move {
                    let _ = channels.process(claimed).await;
                    drop(place);
                    // Another message of the same chat may be next now.
                    channels.shared.inbox.notify_one();
                });
            }
        }
    }
}
