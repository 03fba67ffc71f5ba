//! Channels: how people talk to agents.
//!
//! A message is stored in the inbox, routed, and answered from the outbox. Both are tables, so a crash at any moment
//! loses nothing: unfinished work is claimed again when its lease has lapsed, under the same ids, and has the same
//! result.
//!
//! Invariants: a message is acknowledged only when it is in the inbox; it starts at most one run; a pending reply is
//! delivered at least once, and each part of it is recorded as soon as the other side has accepted it.
//!
//! Start reading at [`Channels::receive`], then `messages` and [`router`] (one message) and [`replies`] (one reply).

pub mod codes;
mod envelope;
mod lease;
pub mod log;
mod messages;
pub mod replies;
pub mod router;
pub mod telegram;

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::envelope::Envelope;
use self::{codes::Code, log::SessionLog};
use self::{
    messages::Routed,
    router::{Outcome, RouteError, Router},
    telegram::Telegram,
};
use crate::{
    config::channels::{ChannelConfig, Channels as Configs},
    domain::{
        id::RunId,
        json::Json,
        limits::{ALBUM_WAIT_MS, DELIVERIES_AT_ONCE, DELIVERY_POLL_MS, JOB_LEASE_MS_DEFAULT, OUTBOX_PAUSE_MS_MIN},
        principal::OwnerId,
        session::inbound::{ChannelName, ChatId, Inbound},
    },
    quota::Share,
    store::{
        self, Store,
        inbox::{Arrival, Enqueued},
    },
    supervise::Supervisor,
    timeline::Timeline,
};

/// How long finished messages are kept to detect duplicates.
const REMEMBERED: TimeDelta = TimeDelta::days(30);
/// How often finished messages older than that are deleted.
const FORGET_EVERY: Duration = Duration::from_mins(10);
/// Delay before the first deletion; also the poll interval without channels.
const FORGET_FIRST: Duration = Duration::from_mins(1);
/// Maximum rows deleted at a time.
const FORGET_ROWS: i64 = 5_000;

/// The answer to a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub router_run_id: RunId,
    /// `None` while it is unknown: the message is in the inbox and will be routed.
    pub outcome: Option<Outcome>,
    /// The message was received before; `outcome` is its earlier result, if it started a run.
    pub is_duplicate: bool,
    /// The message could not be routed and never will be.
    pub is_given_up: bool,
}

/// A handle on the channels. Cheap to clone.
#[derive(Clone)]
pub struct Channels {
    shared: Arc<Shared>,
}

struct Shared {
    timeline: Timeline,
    configs: Configs,
    /// How long a claimed delivery belongs to this process unless its lease is renewed.
    lease: Duration,
    /// Interval at which deliveries are polled without a wake-up.
    poll: Duration,
    log: SessionLog,
    router: Router,
    telegram: Option<Telegram>,
    tasks: TaskTracker,
    inbox: Notify,
    outbox: Notify,
    /// Permits for messages being routed, and for replies being delivered.
    routing: Arc<Semaphore>,
    giving: Arc<Semaphore>,
}

impl Channels {
    pub fn new(
        timeline: Timeline,
        configs: Configs,
        (lease, poll): (Duration, Duration),
        (log, router): (SessionLog, Router),
        telegram: Option<Telegram>,
        tasks: TaskTracker,
    ) -> Self {
        let places = || Arc::new(Semaphore::new(DELIVERIES_AT_ONCE as usize));
        let shared = Shared {
            timeline,
            lease,
            // Without channels, only deliveries of an earlier configuration remain.
            poll: if configs.is_empty() { FORGET_FIRST } else { poll.max(Duration::from_millis(DELIVERY_POLL_MS)) },
            configs,
            log,
            router,
            telegram,
            tasks,
            inbox: Notify::new(),
            outbox: Notify::new(),
            routing: places(),
            giving: places(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Reclaims the deliveries of all processes. Only at the start of a process that has its database to itself.
    pub async fn reclaim_all(&self) -> Result<(), store::Error> {
        let now = self.now();
        // The previous server may have had a different lease length.
        let longest = self.shared.lease.max(Duration::from_millis(JOB_LEASE_MS_DEFAULT));
        let count = self.store().deliveries().reclaim(now, now + longest).await?;
        if count > 0 {
            tracing::info!(count, "deliveries of the previous process taken over");
        }
        Ok(())
    }

    pub fn config(&self, channel: &ChannelName) -> Option<&Arc<ChannelConfig>> {
        self.shared.configs.get(channel)
    }

    /// The session logs.
    pub fn log(&self) -> &SessionLog {
        &self.shared.log
    }

    /// Creates a one-time code for a channel of this owner; `None` if the channel has too many unused ones.
    pub async fn make_code(
        &self,
        owner: &OwnerId,
        channel: &ChannelName,
        life_s: i64,
    ) -> Result<Option<Code>, store::Error> {
        let (ids, key) = (self.shared.timeline.ids(), self.shared.router.key());
        codes::make(self.store(), ids, key, (owner, channel), (self.now(), life_s)).await
    }

    fn store(&self) -> &Store {
        self.shared.timeline.store()
    }

    fn now(&self) -> DateTime<Utc> {
        self.shared.timeline.clock().now()
    }

    /// Telegram, if it is configured.
    pub fn telegram(&self) -> Option<&Telegram> {
        self.shared.telegram.as_ref()
    }

    /// Stores a message in the inbox and routes it. The work continues if the caller disconnects, and holds the
    /// message's share of the sender's quota until it ends.
    pub async fn receive(
        &self,
        owner: &OwnerId,
        channel: &ChannelName,
        inbound: Inbound,
        room: Share,
    ) -> Result<Receipt, store::Error> {
        let envelope = Envelope { inbound, photo: None, target: None, album: None, more: Vec::new() };
        let claimed = match self.arrive(owner, channel, &envelope, false).await? {
            Enqueued::Known(known) => return self.earlier(owner, known).await,
            Enqueued::ClaimedMessage(claimed) => claimed,
        };
        let (channels, router_run_id) = (self.clone(), claimed.router_run_id);
        let work = self.shared.tasks.spawn(async move {
            let _room = room;
            channels.process(*claimed).await
        });
        let receipt = Receipt { router_run_id, outcome: None, is_duplicate: false, is_given_up: false };
        Ok(match work.await {
            Ok(Ok(Routed { router_run_id, outcome })) => Receipt { router_run_id, outcome: Some(outcome), ..receipt },
            Ok(Err(RouteError::Failed(_))) => Receipt { is_given_up: true, ..receipt },
            Ok(Err(RouteError::Later(_))) | Err(_) => receipt,
        })
    }

    /// Stores a message in the inbox and leaves the rest to [`Channels::run`]. A piece of an album waits there for the
    /// others; one that arrives too late becomes a separate message.
    pub async fn leave(&self, owner: &OwnerId, channel: &ChannelName, envelope: &Envelope) -> Result<(), store::Error> {
        if let Some(album) = &envelope.album {
            let until = self.now() + TimeDelta::milliseconds(ALBUM_WAIT_MS);
            let joined = |there: &Json| {
                let there: Envelope = serde_json::from_str(there.as_str()).ok()?;
                Some(Json::of(&there.with(envelope.clone())?))
            };
            let arrival = self.arrival(owner, channel, envelope, true);
            if self.store().inbox().join(&arrival, album, until, joined).await? {
                return Ok(());
            }
        }
        self.arrive(owner, channel, envelope, true).await?;
        self.shared.inbox.notify_one();
        Ok(())
    }

    /// Records that a chat has a new id. Its conversation continues.
    pub async fn moved(
        &self,
        owner: &OwnerId,
        channel: &ChannelName,
        from: &ChatId,
        to: &ChatId,
    ) -> Result<(), store::Error> {
        self.store().sessions().moved(owner, channel, (from, to), self.now()).await
    }

    async fn arrive(
        &self,
        owner: &OwnerId,
        channel: &ChannelName,
        envelope: &Envelope,
        for_later: bool,
    ) -> Result<Enqueued, store::Error> {
        self.store().inbox().enqueue(self.arrival(owner, channel, envelope, for_later)).await
    }

    fn arrival<'a>(
        &self,
        owner: &'a OwnerId,
        channel: &'a ChannelName,
        envelope: &'a Envelope,
        for_later: bool,
    ) -> Arrival<'a> {
        let id = || RunId::trusted(self.shared.timeline.ids().uuid());
        Arrival {
            owner,
            channel,
            message_id: envelope.inbound.message_id.as_ref(),
            chat_id: &envelope.inbound.chat_id,
            content: Json::of(envelope),
            router_run_id: id(),
            run_id: id(),
            now: self.now(),
            lease_until: self.lease_until(),
            for_later,
        }
    }

    /// Processes the inbox and the outbox until `stop`, on wake-ups and by polling.
    async fn run(self, stop: CancellationToken) {
        let every = || {
            let pause = self.shared.poll;
            let first = Instant::now() + if self.shared.configs.is_empty() { pause } else { Duration::ZERO };
            let mut every = tokio::time::interval_at(first, pause);
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
            let (mut every, mut run_changes) = (every(), self.shared.timeline.run_changes());
            loop {
                // A reply is due once its run has ended, in any process.
                tokio::select! {
                    _ = every.tick() => {},
                    () = self.shared.outbox.notified() => {},
                    Ok(()) = run_changes.changed() => {},
                }
                let query_time = self.look_into_outbox().await;
                // Pauses in proportion to the query's duration, so that many runs and replies do not occupy the
                // database.
                let (least, most) =
                    (Duration::from_millis(OUTBOX_PAUSE_MS_MIN), Duration::from_millis(DELIVERY_POLL_MS));
                tokio::time::sleep((query_time * 4).clamp(least, most)).await;
            }
        };
        Box::pin(stop.run_until_cancelled(async { tokio::join!(inbox, outbox) })).await;
    }

    /// Starts its tasks.
    pub fn start(&self, supervisor: &Supervisor) {
        supervisor.run("channels", self.clone(), Self::run);
        supervisor.every("deliveries, forgetting", (FORGET_FIRST, FORGET_EVERY), self.clone(), |channels, ()| {
            Box::pin(channels.store().deliveries().forget(channels.now() - REMEMBERED, FORGET_ROWS))
        });
    }

    /// The end of a lease that begins now.
    fn lease_until(&self) -> DateTime<Utc> {
        self.now() + self.shared.lease
    }
}

/// Takes all free permits, once there is at least one.
async fn free_places(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let mut free = Arc::clone(places).acquire_owned().await.expect("it is never closed");
    while let Ok(another) = Arc::clone(places).try_acquire_owned() {
        free.merge(another);
    }
    free
}
