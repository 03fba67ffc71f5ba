//! Other processes: ringing for them, and bringing their commits onto this process's bus.
//!
//! A bell only says «look». What is published is read from the table, in the order of positions. A bounded poll looks
//! even when no bell rings, so a lost wake-up costs a moment and never an event.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Contexts,
    publish::{Publication, Publisher, Turn},
};
use crate::{
    domain::{cursor::FeedCursor, limits::REPLAY_ROWS},
    store::{Store, listen::Ears},
};

/// A piece longer than this is not published event by event: its readers page it themselves.
const CATCH_UP_EVENTS_MAX: i64 = 20_000;
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(250);

/// How far this process has committed; ringing twice while nobody looked is ringing once.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Arc<watch::Sender<FeedCursor>>);

impl Default for Bell {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(FeedCursor::start())))
    }
}

impl Bell {
    pub(crate) fn ring(&self, lane: u8, position: i64) {
        self.0.send_modify(|tail| tail.advance(lane, position.max(tail.at(lane))));
    }
}

/// The two tasks that connect processes.
#[derive(Clone)]
pub(crate) struct Relay {
    pub store: Store,
    pub publisher: Publisher,
    pub contexts: Contexts,
    pub process: String,
}

impl Relay {
    /// Passes this process's rings on to the others.
    pub(crate) async fn ring(self, bell: Bell, stop: CancellationToken) {
        let mut tails = bell.0.subscribe();
        let work = async {
            loop {
                if tails.changed().await.is_err() {
                    return;
                }
                let Ok(mut doorbell) = self.store.doorbell().await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                loop {
                    let tail = tails.borrow_and_update().clone();
                    if doorbell.ring(&self.process, &tail).await.is_err() || tails.changed().await.is_err() {
                        break;
                    }
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Publishes what other processes commit, until `stop`.
    pub(crate) async fn listen(self, poll: Duration, stop: CancellationToken) {
        let work = async {
            let mut ears: Option<Ears> = None;
            loop {
                let heard = async {
                    match &mut ears {
                        Some(ears) => ears.hear(&self.process).await.map(|_| ()),
                        None => std::future::pending().await,
                    }
                };
                let deaf = matches!(tokio::time::timeout(poll, heard).await, Ok(Err(_)));
                if deaf || ears.is_none() {
                    ears = self.store.ears().await.ok();
                }
                self.look().await;
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Publishes whatever is committed and not published yet.
    async fn look(&self) {
        let Ok(tail) = self.store.feed_tail().await else { return };
        for (lane, _) in tail.lanes().filter(|(lane, position)| *position > self.publisher.published(*lane)) {
            if !self.publisher.has_lane(lane) {
                continue;
            }
            let turn = self.publisher.turn(lane).await;
            // The lane may have published it meanwhile; what stands behind it now is the others'.
            let Ok(tail) = self.store.feed_tail().await else { return };
            catch_up(&self.store, &self.publisher, &self.contexts, &turn, lane, tail.at(lane)).await;
        }
    }
}

/// Publishes a lane up to and including a committed position, from the table.
///
/// Tries until it is done: whoever holds the turn cannot go on without it.
pub(super) async fn catch_up(
    store: &Store,
    publisher: &Publisher,
    contexts: &Contexts,
    turn: &Turn,
    lane: u8,
    up_to: i64,
) {
    while publisher.published(lane) < up_to {
        let from = publisher.published(lane);
        if publisher.bus().topics_count() == 0 || up_to - from > CATCH_UP_EVENTS_MAX {
            publisher.skip(turn, lane, up_to);
            return;
        }
        let events = match store.lane_range(lane, from, REPLAY_ROWS.min(up_to - from)).await {
            Ok(events) => events,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the relay cannot read");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if contexts.learn(events.iter().map(|(_, event)| event.run_id)).await.is_err() {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let last = events.last().map_or(up_to, |(place, _)| place.position.min(up_to));
        let whole = events.len() as i64 == last - from
            && events.iter().all(|(_, event)| contexts.known(event.run_id).is_some());
        if whole {
            let publications = events.into_iter().filter_map(|(place, event)| {
                let context = contexts.known(event.run_id)?;
                Some((context, Publication::Durable(place, event)))
            });
            publisher.publish(turn, lane, last, publications);
        } else {
            // Retention has been here: the positions have holes, so readers are sent to the table.
            publisher.skip(turn, lane, up_to);
        }
    }
}
