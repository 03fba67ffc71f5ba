//! The in-process broadcast: who is listening to a run or to an owner, and frames for them.
//!
//! Invariant kept here: a topic's frames arrive in the order they were published, and a reader that is too slow is told
//! so ([`Heard::Lagged`]) instead of being waited for or silently skipped. One reader's lag costs the others nothing.
//!
//! Others get a handle, never a channel. A topic exists while somebody listens; publishing to nobody costs a look-up.

mod frame;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};

pub use self::frame::Frame;
use crate::domain::{id::RunId, principal::OwnerId};

/// What can be listened to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// One run.
    Run(RunId),
    /// Every run of an owner.
    Owner(OwnerId),
}

/// What a listener hears.
#[derive(Clone, Debug)]
pub enum Heard {
    Frame(Arc<Frame>),
    /// Frames were missed; the database has the durable ones.
    Lagged,
    /// The log was set back: what was heard may be no more.
    Reset,
}

#[derive(Clone, Debug)]
enum Note {
    Frame(Arc<Frame>),
    /// The publisher itself skipped ahead.
    Skipped,
    /// The publisher went back.
    Reset,
}

type Topics = HashMap<Topic, broadcast::Sender<Note>>;

/// The bus. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Bus {
    topics: Arc<Mutex<Topics>>,
    frames_max: usize,
}

impl Bus {
    /// A bus that keeps `frames_max` frames per topic for readers that are behind.
    pub fn new(frames_max: usize) -> Self {
        Self { topics: Arc::default(), frames_max: frames_max.max(1) }
    }

    fn topics(&self) -> MutexGuard<'_, Topics> {
        // The map stays whole whatever a panicking thread did: every change to it is a single call.
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens from now on.
    pub fn subscribe(&self, topic: Topic) -> Subscription {
        let mut topics = self.topics();
        let sender = topics.entry(topic.clone()).or_insert_with(|| broadcast::channel(self.frames_max).0);
        Subscription { receiver: sender.subscribe(), topic, bus: self.clone() }
    }

    /// Whether anybody would hear a frame of this run.
    pub fn is_heard(&self, run: RunId, owner: &OwnerId) -> bool {
        let topics = self.topics();
        topics.contains_key(&Topic::Run(run)) || topics.contains_key(&Topic::Owner(owner.clone()))
    }

    /// Hands a frame to everybody who listens to its run or its owner.
    pub fn publish(&self, frame: Frame) {
        let (run, owner) = (Topic::Run(frame.context.run_id), Topic::Owner(frame.context.owner_id.clone()));
        let frame = Arc::new(frame);
        let topics = self.topics();
        for sender in [topics.get(&run), topics.get(&owner)].into_iter().flatten() {
            // An error means that the last listener is just leaving.
            let _ = sender.send(Note::Frame(Arc::clone(&frame)));
        }
    }

    /// Tells every listener to look into the database, because frames were not published one by one.
    pub fn skip(&self) {
        for sender in self.topics().values() {
            let _ = sender.send(Note::Skipped);
        }
    }

    /// Tells every listener that the log was set back.
    pub fn reset(&self) {
        for sender in self.topics().values() {
            let _ = sender.send(Note::Reset);
        }
    }

    /// Topics with listeners.
    pub fn topics_count(&self) -> usize {
        self.topics().len()
    }
}

/// One listener of one topic.
#[derive(Debug)]
pub struct Subscription {
    receiver: broadcast::Receiver<Note>,
    topic: Topic,
    bus: Bus,
}

impl Subscription {
    /// Waits for what comes next.
    pub async fn next(&mut self) -> Heard {
        match self.receiver.recv().await {
            Ok(Note::Frame(frame)) => Heard::Frame(frame),
            Ok(Note::Skipped) | Err(RecvError::Lagged(_)) => Heard::Lagged,
            Ok(Note::Reset) => Heard::Reset,
            // A topic lives as long as its last listener, so its channel cannot close under one.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// Takes what is already there.
    pub fn try_next(&mut self) -> Option<Heard> {
        match self.receiver.try_recv() {
            Ok(Note::Frame(frame)) => Some(Heard::Frame(frame)),
            Ok(Note::Skipped) | Err(TryRecvError::Lagged(_)) => Some(Heard::Lagged),
            Ok(Note::Reset) => Some(Heard::Reset),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }

    /// Whether nothing is waiting. Only meaningful while publishing is held up.
    pub fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = self.bus.topics();
        // This receiver still counts as one.
        if topics.get(&self.topic).is_some_and(|sender| sender.receiver_count() <= 1) {
            topics.remove(&self.topic);
        }
    }
}

#[cfg(test)]
mod tests;
