//! The in-process broadcast: the subscribers of runs and owners, and frames for them.
//!
//! Invariant: a topic's frames arrive in the order they were published, and a reader that is too slow is notified
//! ([`BusMessage::Lagged`]) instead of being waited for or silently skipped. One reader's lag does not affect others.
//!
//! What is queued for slow readers is bounded: in frames for each topic, in bytes for all topics of a principal.
//!
//! Subscribers get a [`Bus`]; the [`Publisher`] is a separate value, created once with the bus. A topic exists while it
//! has a subscriber; publishing without one costs a lookup.

mod frame;
mod queue;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};

pub use self::frame::Frame;
use self::queue::{OwnerQueue, QueuedFrame};
use crate::domain::{
    context::RunContext,
    id::{RunId, Seq},
    limits::BUS_OWN_BYTES_MAX,
    principal::OwnerId,
};

/// What can be subscribed to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// One run.
    Run(RunId),
    /// Every run of the owner.
    Everything,
}

/// A notice that a run with a lease has stalled, or no longer is stalled.
#[derive(Debug)]
pub struct Stall {
    pub context: Arc<RunContext>,
    /// The run's last event at that time; a reader that has a later one ignores the notice.
    pub last_seq: Seq,
    pub is_stalled: bool,
}

/// What a subscriber receives.
#[derive(Clone, Debug)]
pub enum BusMessage {
    Frame(Arc<Frame>),
    Stalled(Arc<Stall>),
    /// Frames were missed; the database has the durable ones.
    Lagged,
    /// The log was set back: what was received may no longer exist.
    Reset,
}

#[derive(Clone, Debug)]
enum Note {
    Frame(Arc<QueuedFrame>),
    Stalled(Arc<Stall>),
    /// The publisher itself skipped ahead.
    Skipped,
    /// The log was set back.
    Reset,
}

/// The topics of one owner that have subscribers, and the frames queued in them.
#[derive(Debug, Default)]
struct Topics {
    senders: HashMap<Topic, broadcast::Sender<Note>>,
    queued: OwnerQueue,
}

/// The bus, for subscribers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Bus {
    owners: Arc<Mutex<HashMap<OwnerId, Topics>>>,
    frames_max: usize,
    bytes_max: usize,
}

/// The only value that publishes on its bus. It cannot be cloned: its holder decides the order.
#[derive(Debug)]
pub struct Publisher(Bus);

impl Bus {
    /// A bus that keeps `frames_max` frames per topic for slow readers, and its only publisher.
    pub fn new(frames_max: usize) -> (Self, Publisher) {
        let bus = Self { owners: Arc::default(), frames_max: frames_max.max(1), bytes_max: BUS_OWN_BYTES_MAX };
        (bus.clone(), Publisher(bus))
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<OwnerId, Topics>> {
        // The maps stay consistent after a panic: every change to them is a single call.
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to what is published from now on.
    pub fn subscribe(&self, owner: OwnerId, topic: Topic) -> Subscription {
        let mut owners = self.owners();
        let topics = owners.entry(owner.clone()).or_default();
        let sender = topics.senders.entry(topic.clone()).or_insert_with(|| broadcast::channel(self.frames_max).0);
        Subscription { receiver: sender.subscribe(), owner, topic, bus: self.clone() }
    }

    /// Whether a frame of this run would reach a subscriber.
    pub fn is_heard(&self, run: RunId, owner: &OwnerId) -> bool {
        let owners = self.owners();
        let senders = owners.get(owner).map(|topics| &topics.senders);
        senders
            .is_some_and(|senders| senders.contains_key(&Topic::Run(run)) || senders.contains_key(&Topic::Everything))
    }

    /// The owners whose runs have subscribers.
    pub fn listeners(&self) -> Vec<OwnerId> {
        self.owners().keys().cloned().collect()
    }

    /// The topics with subscribers, each with its owner.
    pub fn topics(&self) -> Vec<(OwnerId, Topic)> {
        let owners = self.owners();
        let all =
            owners.iter().flat_map(|(owner, topics)| topics.senders.keys().map(|topic| (owner.clone(), topic.clone())));
        all.collect()
    }

    /// Topics with subscribers.
    pub fn topics_count(&self) -> usize {
        self.owners().values().map(|topics| topics.senders.len()).sum()
    }
}

impl Publisher {
    /// Sends a frame to the subscribers of its run and of its owner.
    pub fn publish(&self, frame: Frame) {
        let mut owners = self.0.owners();
        let Some(Topics { senders, queued }) = owners.get_mut(&frame.context.owner_id) else { return };
        let run = Topic::Run(frame.context.run_id);
        let frame = Arc::new(frame);
        for sender in [senders.get(&run), senders.get(&Topic::Everything)].into_iter().flatten() {
            // An error means that the last subscriber is just being dropped.
            let _ = sender.send(Note::Frame(queued.keep(Arc::clone(&frame), self.0.bytes_max)));
        }
    }

    /// Notifies the subscribers of a run and of its owner that it has stalled, or no longer is stalled.
    pub fn tell(&self, stall: Stall) {
        let owners = self.0.owners();
        let Some(Topics { senders, .. }) = owners.get(&stall.context.owner_id) else { return };
        let run = Topic::Run(stall.context.run_id);
        let stall = Arc::new(stall);
        for sender in [senders.get(&run), senders.get(&Topic::Everything)].into_iter().flatten() {
            let _ = sender.send(Note::Stalled(Arc::clone(&stall)));
        }
    }

    /// Makes every subscriber read the database, because frames were not published one by one.
    pub fn skip(&self) {
        self.notify(&Note::Skipped);
    }

    /// Notifies every subscriber that the log was set back.
    pub fn reset(&self) {
        self.notify(&Note::Reset);
    }

    fn notify(&self, note: &Note) {
        for sender in self.0.owners().values().flat_map(|topics| topics.senders.values()) {
            let _ = sender.send(note.clone());
        }
    }
}

/// A subscription to one topic.
#[derive(Debug)]
pub struct Subscription {
    receiver: broadcast::Receiver<Note>,
    owner: OwnerId,
    topic: Topic,
    bus: Bus,
}

impl Subscription {
    /// Waits for the next message.
    pub async fn next(&mut self) -> BusMessage {
        match self.receiver.recv().await {
            Ok(note) => self.hear(&note),
            Err(RecvError::Lagged(_)) => BusMessage::Lagged,
            // A topic lives as long as its last subscriber, so the channel of a live one cannot close.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// The next message, if there is one already.
    pub fn try_next(&mut self) -> Option<BusMessage> {
        match self.receiver.try_recv() {
            Ok(note) => Some(self.hear(&note)),
            Err(TryRecvError::Lagged(_)) => Some(BusMessage::Lagged),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }

    fn hear(&mut self, note: &Note) -> BusMessage {
        let kept = match note {
            Note::Frame(kept) => kept,
            Note::Stalled(stall) => return BusMessage::Stalled(Arc::clone(stall)),
            Note::Skipped => return BusMessage::Lagged,
            Note::Reset => return BusMessage::Reset,
        };
        kept.frame().map_or_else(
            || {
                // More may be missing. All that is queued is committed, so a reader that pages from here misses
                // nothing.
                self.receiver = self.receiver.resubscribe();
                BusMessage::Lagged
            },
            BusMessage::Frame,
        )
    }

    /// Whether nothing is queued. Only meaningful while publishing is blocked.
    pub fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut owners = self.bus.owners();
        let Some(topics) = owners.get_mut(&self.owner) else { return };
        // This receiver still counts as one.
        if topics.senders.get(&self.topic).is_some_and(|sender| sender.receiver_count() <= 1) {
            topics.senders.remove(&self.topic);
            if topics.senders.is_empty() {
                owners.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests;
