//! What tests of graphs share: a log and a journal in memory that a test takes away in the middle.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use chrono::DateTime;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{
    journal::{Journal, JournalError},
    visit::{Answered, ChildEnd, Facts},
};
use crate::{
    domain::{
        checkpoint::{Blob, Channel, Channels, Checkpoint, Write},
        context::RunContext,
        event::NewEvent,
        id::{RunId, SpanId, ThreadId},
    },
    emitters::sink::{Sink, SinkError},
    store::checkpoints::{NewCheckpoint, NewWrites},
};

/// A log and a journal that a process may lose its grip on: after `left` operations nothing works any more.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) left: AtomicUsize,
    pub(crate) done: AtomicUsize,
    /// Whether the operation that fails takes effect all the same, as when only its answer is lost.
    pub(crate) lost_answer: AtomicBool,
    pub(crate) kept: Mutex<Kept>,
}

#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) checkpoints: Vec<NewCheckpoint>,
    pub(crate) blobs: BTreeMap<(String, String), Blob>,
    pub(crate) writes: Vec<NewWrites>,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) answers: BTreeMap<String, Answered>,
    pub(crate) ends: Vec<ChildEnd>,
}

impl World {
    pub(crate) fn lasting(operations: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(operations), ..Self::default() })
    }

    pub(crate) fn again(&self, operations: usize) -> Arc<Self> {
        let kept = std::mem::take(&mut *self.kept.lock().unwrap());
        Arc::new(Self { left: AtomicUsize::new(operations), kept: Mutex::new(kept), ..Self::default() })
    }

    pub(crate) fn operation<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> Result<T, JournalError> {
        self.done.fetch_add(1, Ordering::SeqCst);
        let alive = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if alive {
            return Ok(act(&mut self.kept.lock().unwrap()));
        }
        // The answer to the first operation that fails may be all that was lost.
        if self.lost_answer.swap(false, Ordering::SeqCst) {
            act(&mut self.kept.lock().unwrap());
        }
        Err(JournalError { reason: "killed".to_owned(), transient: true })
    }

    /// What readers of the log see, without what differs from one attempt to the next.
    pub(crate) fn story(&self) -> Vec<(String, Option<String>, Value)> {
        let kept = self.kept.lock().unwrap();
        let told = kept.events.iter().map(|event| {
            let mut payload: Value = serde_json::from_str(event.payload.as_str()).unwrap();
            let mut span = event.span_id.as_ref().map(ToString::to_string);
            for volatile in ["duration_ms", "checkpoint_id"] {
                payload.as_object_mut().unwrap().remove(volatile);
            }
            if event.event_type.as_str() == "state.checkpointed" {
                span = None;
            }
            (event.event_type.to_string(), span, payload)
        });
        told.collect()
    }
}

pub(crate) struct Thread(pub(crate) Arc<World>, pub(crate) ThreadId);

impl Journal for Thread {
    fn latest(&self) -> BoxFuture<'_, Result<Option<Checkpoint>, JournalError>> {
        Box::pin(async {
            self.0.operation(|kept| {
                let newest = kept.checkpoints.iter().max_by_key(|new| new.checkpoint_id.clone())?;
                let blobs = newest.versions.0.iter().map(|(channel, version)| {
                    let key = (channel.as_str().to_owned(), version.as_json().to_owned());
                    (Channel::trusted(channel.as_str()), kept.blobs[&key].clone())
                });
                let writes = kept.writes.iter().filter(|writes| writes.checkpoint_id == newest.checkpoint_id);
                let writes = writes.flat_map(|new| {
                    new.writes.iter().map(|(idx, channel, value)| Write {
                        task_id: new.task_id.clone(),
                        task_path: new.task_path.clone(),
                        idx: *idx,
                        channel: channel.clone(),
                        t: value.t.clone(),
                        b: value.b.clone(),
                    })
                });
                Some(Checkpoint {
                    thread_id: self.1.clone(),
                    ns: newest.ns.clone(),
                    checkpoint_id: newest.checkpoint_id.clone(),
                    parent_id: newest.parent_id.clone(),
                    run_id: newest.run_id.clone(),
                    checkpoint: newest.checkpoint.clone(),
                    metadata: newest.metadata.clone(),
                    versions: newest.versions.clone(),
                    blobs: Channels(blobs.collect()),
                    writes: writes.collect(),
                    created_at: DateTime::UNIX_EPOCH,
                })
            })
        })
    }

    fn put(&self, new: NewCheckpoint) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async {
            self.0.operation(|kept| {
                for (channel, blob) in &new.blobs.0 {
                    let key = (channel.as_str().to_owned(), blob.version.as_json().to_owned());
                    kept.blobs.entry(key).or_insert_with(|| blob.clone());
                }
                kept.checkpoints.push(new);
            })
        })
    }

    fn write(&self, new: NewWrites) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async {
            self.0.operation(|kept| {
                let place = |writes: &NewWrites| (writes.checkpoint_id.clone(), writes.task_id.clone());
                if !kept.writes.iter().any(|there| place(there) == place(&new)) {
                    kept.writes.push(new);
                }
            })
        })
    }

    fn thread(&self) -> &ThreadId {
        &self.1
    }
}

impl Facts for World {
    fn answer<'a>(&'a self, interrupt: &'a SpanId) -> BoxFuture<'a, Result<Option<Answered>, JournalError>> {
        Box::pin(async move { self.operation(|kept| kept.answers.get(interrupt.as_str()).cloned()) })
    }

    fn ends<'a>(&'a self, runs: &'a [RunId]) -> BoxFuture<'a, Result<Vec<ChildEnd>, JournalError>> {
        Box::pin(async move {
            self.operation(|kept| {
                let end = |run: &RunId| kept.ends.iter().find(|end| end.run_id == *run).cloned();
                runs.iter().filter_map(end).collect()
            })
        })
    }
}

/// The log: an event id that is there already is no second event.
pub(crate) struct Log(pub(crate) Arc<World>);

impl Sink for Log {
    fn emit<'a>(&'a self, _: &'a RunContext, events: Vec<NewEvent>) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            let emitted = self.0.operation(|kept| {
                for event in events {
                    let known = |there: &NewEvent| there.event_id.is_some() && there.event_id == event.event_id;
                    if !kept.events.iter().any(known) {
                        kept.events.push(event);
                    }
                }
            });
            emitted.map_err(SinkError::new)
        })
    }
}
