//! The way of one message: out of the inbox, through the router, to its run or to the reason why there is none.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use tokio::time::Instant;

use super::{Channels, Envelope, Receipt, free_places, lease};
use crate::{
    domain::{
        limits::{DELIVERY_ATTEMPTS_MAX, DUPLICATE_WAIT_MS_MAX},
        principal::OwnerId,
        session::Reason,
    },
    sessions::steps::{Routed, StartError, Started},
    store::{
        self,
        inbox::{Delivery, Done, Stands, Taken},
    },
};

/// Pauses between two looks at a delivery that is on its way.
const LOOK_PAUSES_MS: (u64, u64) = (5, 160);

impl Channels {
    /// Carries out a message that was taken up, and gives it back when it cannot be done now.
    pub(super) async fn carry_out(&self, taken: Taken) -> Result<Started, StartError> {
        let (steps, attempts) = (&self.shared.steps, taken.attempts);
        let renew = || steps.store().renew_inbound(&taken, self.lease_until());
        let Some(done) = lease::keep(self.shared.lease, Box::pin(self.route(&taken)), renew).await else {
            tracing::info!(router_run_id = %taken.router_run_id, "somebody else carries this message out now");
            return Err(StartError::Other("somebody else has taken it up".to_owned()));
        };
        let Err(error) = &done else { return done };
        tracing::warn!(error = error as &dyn std::error::Error, attempts, "a message could not be routed yet");
        let given_up = attempts >= DELIVERY_ATTEMPTS_MAX || error.is_lasting();
        let kept = if given_up {
            metrics::counter!("runreel_messages_given_up_total").increment(1);
            tracing::error!(router_run_id = %taken.router_run_id, "a message was given up");
            self.shared.start.give_up(&taken.owner_id, taken.router_run_id, &error.to_string()).await;
            steps.store().finish_inbound(&taken, Done::Failed).await
        } else {
            let pause = TimeDelta::seconds(1 << attempts.clamp(0, 8));
            steps.store().release_inbound(&taken, steps.clock().now() + pause).await
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
            Started::Accepted { .. } => Done::Accepted,
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
        let Started::Released { inbound_no, .. } = &started else {
            store.finish_inbound(taken, done).await?;
            return Ok(started);
        };
        // First it waits no more, then its code is put away: a crash in between repeats the code, and loses nothing.
        let held = match inbound_no {
            Some(held_no) => store.take_held(&routed.owner, *held_no, self.lease_until()).await?,
            None => None,
        };
        store.finish_inbound(taken, done).await?;
        if inbound_no.is_some() {
            store.let_go(&routed.owner, &routed.channel, &routed.inbound.user_id).await?;
        }
        match held {
            Some(held) => Box::pin(self.carry_out(held)).await,
            None => Ok(started),
        }
    }

    /// What became of a delivery that came before. One that is on its way is waited for, if not long.
    pub(super) async fn earlier(&self, owner: &OwnerId, mut known: Delivery) -> Result<Receipt, store::Error> {
        let (began, (mut pause_ms, pause_ms_max)) = (Instant::now(), LOOK_PAUSES_MS);
        while known.stands == Stands::Open && began.elapsed() < Duration::from_millis(DUPLICATE_WAIT_MS_MAX) {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            pause_ms = (pause_ms * 2).min(pause_ms_max);
            let Some(now) = self.shared.steps.store().delivery(owner, known.inbound_no).await? else { break };
            known = now;
        }
        let Delivery { router_run_id, run_id, stands, .. } = known;
        let context = match stands {
            Stands::Accepted => self.shared.timeline.context(owner, run_id).await?,
            Stands::Open | Stands::NoRun => None,
        };
        let place = context.and_then(|run| run.session_id.clone().zip(run.thread_id.clone()));
        let first =
            place.map(|(session_id, thread_id)| Started::Accepted { run_id, router_run_id, session_id, thread_id });
        Ok(Receipt::Duplicate { router_run_id, first })
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

    /// Takes up what waits in the inbox, as much as there are places for.
    pub(super) async fn look_into_inbox(&self) {
        loop {
            let mut room = free_places(&self.shared.routing).await;
            let times = (self.shared.steps.clock().now(), self.lease_until());
            let most = i64::try_from(room.num_permits()).unwrap_or(i64::MAX);
            let waiting = match self.shared.steps.store().take_waiting(times, most).await {
                Ok(waiting) => waiting,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the inbox was not looked into");
                    return;
                }
            };
            if waiting.is_empty() {
                return;
            }
            for taken in waiting {
                let (channels, place) = (self.clone(), room.split(1));
                // Tracked and not part of this loop, so that a shutdown waits for it and nothing else does.
                self.shared.tasks.spawn(async move {
                    let _ = channels.carry_out(taken).await;
                    drop(place);
                    // Another of the same chat may have come to the front.
                    channels.shared.inbox.notify_one();
                });
            }
        }
    }
}
