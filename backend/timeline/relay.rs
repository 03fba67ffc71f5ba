//! Other processes: waking them up, and publishing their commits on this process's bus.
//!
//! A wake-up is only a hint. What is published is read from the table, in the order of positions. A bounded poll reads
//! it even without one, so a lost wake-up costs a moment and never an event.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Contexts,
    history::{Forks, Verdict, judge},
    publish::{Gate, Publication, Turn},
    texts::Texts,
};
use crate::{
    domain::{context::RunContext, cursor::FeedCursor, limits::REPLAY_ROWS},
    store::{
        self, Store,
        history::LogState,
        listen::{Heard, Notifications},
    },
    supervise::Supervisor,
};

/// A piece longer than this is not published event by event: its readers page it themselves.
const CATCH_UP_EVENTS_MAX: i64 = 20_000;
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(250);

/// How far this process has committed; wake-ups that were not sent yet are merged into one.
#[derive(Clone, Debug)]
pub(crate) struct WakeupSender(Arc<watch::Sender<FeedCursor>>);

impl Default for WakeupSender {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(FeedCursor::start())))
    }
}

impl WakeupSender {
    pub(crate) fn send(&self, lane: u8, position: i64) {
        self.0.send_modify(|tail| tail.advance(lane, position.max(tail.at(lane))));
    }
}

/// The two tasks that connect processes.
#[derive(Clone)]
pub(crate) struct Relay {
    pub(super) forks: Forks,
    pub(super) texts: Texts,
    pub process: String,
}

impl Relay {
    /// Sends and receives until the supervisor stops.
    pub(super) fn start(self, supervisor: &Supervisor, wakeup: WakeupSender, poll: Duration) {
        supervisor.keep("relay, sending", {
            let (relay, stop) = (self.clone(), supervisor.stop().clone());
            move || relay.clone().send_wakeups(wakeup.clone(), stop.clone())
        });
        supervisor.keep("relay, receiving", {
            let stop = supervisor.stop().clone();
            move || self.clone().listen(poll, stop.clone())
        });
    }

    /// Sends this process's wake-ups to the others.
    async fn send_wakeups(self, wakeup: WakeupSender, stop: CancellationToken) {
        let mut tails = wakeup.0.subscribe();
        let work = async {
            loop {
                if tails.changed().await.is_err() {
                    return;
                }
                let Ok(mut notifier) = self.forks.store.notifier().await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                loop {
                    let tail = tails.borrow_and_update().clone();
                    if notifier.notify(&self.process, &tail).await.is_err() || tails.changed().await.is_err() {
                        break;
                    }
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Publishes what other processes commit, until `stop`.
    async fn listen(self, poll: Duration, stop: CancellationToken) {
        let work = async {
            let mut notifications: Option<Notifications> = Box::pin(self.forks.store.notifications()).await.ok();
            let mut next_check = Instant::now() + poll;
            loop {
                let heard = async {
                    match &mut notifications {
                        Some(notifications) => notifications.hear(&self.process).await,
                        None => std::future::pending().await,
                    }
                };
                match tokio::time::timeout_at(next_check, heard).await {
                    // Not about commits, which are still checked on time however many of these arrive.
                    Ok(Ok(Heard::Texts(runs))) => {
                        self.texts.told(runs);
                        continue;
                    }
                    Ok(Ok(Heard::Commits)) => {}
                    Ok(Ok(Heard::Renewed)) => self.texts.missed(),
                    Ok(Err(_)) => notifications = None,
                    Err(_) => {}
                }
                if notifications.is_none() {
                    notifications = Box::pin(self.forks.store.notifications()).await.ok();
                    self.texts.missed();
                }
                Box::pin(self.check()).await;
                next_check = Instant::now() + poll;
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Publishes what is committed but not yet published.
    async fn check(&self) {
        let Forks { store, gate, contexts, health, .. } = &self.forks;
        // Read first: what is published by now cannot be missing from the log, unless the database was set back.
        let (known, published) = (gate.histories(), gate.tail());
        let Ok(standing) = store.log_standing().await else { return };
        if judge(&known, &published, &standing) != Verdict::Same {
            // A failure is logged, and retried at the next check.
            let _ = self.forks.reconcile().await;
            return;
        }
        health.reconciled(Ok(()));
        for (lane, _) in standing.tail.lanes().filter(|(lane, position)| *position > gate.published(*lane)) {
            if !gate.has_lane(lane) {
                continue;
            }
            let turn = gate.turn(lane).await;
            // The lane may have published it meanwhile; what follows now was committed by other processes.
            let Ok(LogState { tail, .. }) = store.log_standing().await else { return };
            if tail.history() == gate.histories().current() {
                catch_up(store, gate, contexts, &turn, lane, tail.at(lane)).await;
            }
        }
    }
}

/// Publishes a lane up to and including a committed position, from the table.
///
/// What cannot be published event by event is skipped, and every reader pages it: always correct, only slower.
pub(super) async fn catch_up(store: &Store, gate: &Gate, contexts: &Contexts, turn: &Turn, lane: u8, up_to: i64) {
    while gate.published(lane) < up_to {
        let from = gate.published(lane);
        if gate.is_idle() || up_to - from > CATCH_UP_EVENTS_MAX {
            gate.skip(turn, lane, up_to);
            return;
        }
        match piece(store, contexts, lane, from, REPLAY_ROWS.min(up_to - from)).await {
            Ok(Some(publications)) => {
                let last = from + publications.len() as i64;
                gate.publish(turn, lane, last, publications.into_iter());
            }
            Ok(None) => gate.skip(turn, lane, up_to),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "relay read failed; readers fall back to the database"
                );
                gate.skip(turn, lane, up_to);
            }
        }
    }
}

/// The next events of a lane; `None` if positions are missing because retention deleted them.
async fn piece(
    store: &Store,
    contexts: &Contexts,
    lane: u8,
    from: i64,
    count: i64,
) -> Result<Option<Vec<(Arc<RunContext>, Publication)>>, store::Error> {
    let events = store.lane_range(lane, from, count).await?;
    contexts.learn(events.iter().map(|(_, event)| (event.run_id, &*event.owner_id))).await?;
    let contiguous = !events.is_empty() && events.iter().zip(from + 1..).all(|((place, _), at)| place.position == at);
    let known = events.into_iter().map(|(place, event)| {
        let context = contexts.known(event.run_id, &event.owner_id)?;
        Some((context, Publication::Durable(place, event)))
    });
    Ok(if contiguous { known.collect() } else { None })
}
