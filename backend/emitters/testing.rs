//! Test support for code that needs a host: an in-memory log and thread that a test can read and cut off at any point.

use std::{
    collections::BTreeMap,
    str::FromStr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use chrono::DateTime;
use serde_json::Value;

use super::host::{Answered, ArtifactRef, Child, ChildEnd, HostError, Hosted, Piece, RunHost};
use crate::{
    domain::{
        checkpoint::{Blob, Channel, Channels, Checkpoint, Write},
        context::{Role, RunContext},
        event::{EventKind, NewEvent, Recorded},
        id::{Name, RunId, Seq, SpanId},
        principal::OwnerId,
        run::Status,
    },
    store::checkpoints::{NewCheckpoint, NewWrites},
    threads::state_thread,
};

/// State shared by hosts; a process may lose access to it: after `left` operations every call fails.
pub(crate) struct World {
    pub(crate) left: AtomicUsize,
    pub(crate) done: AtomicUsize,
    /// Whether the failing operation takes effect anyway, as when only its answer is lost.
    pub(crate) lost_answer: AtomicBool,
    /// The type of the event that is refused, if any.
    refuses: Option<&'static str>,
    pub(crate) held: Mutex<HostState>,
}

#[derive(Default)]
pub(crate) struct HostState {
    pub(crate) checkpoints: Vec<NewCheckpoint>,
    pub(crate) blobs: BTreeMap<(String, String), Blob>,
    pub(crate) writes: Vec<NewWrites>,
    pub(crate) events: Vec<Recorded>,
    pub(crate) answers: BTreeMap<String, Answered>,
    pub(crate) ends: Vec<ChildEnd>,
    /// Names, media types and bytes; the first is `a1`. While `None`, none are accepted.
    pub(crate) artifacts: Option<Vec<(String, String, Bytes)>>,
}

impl World {
    pub(crate) fn lasting(operations: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(operations),
            done: AtomicUsize::default(),
            lost_answer: AtomicBool::default(),
            refuses: None,
            held: Mutex::default(),
        })
    }

    pub(crate) fn endless() -> Arc<Self> {
        Self::lasting(usize::MAX)
    }

    pub(crate) fn refusing(event_type: &'static str) -> Arc<Self> {
        let mut world = Self::endless();
        Arc::get_mut(&mut world).unwrap().refuses = Some(event_type);
        world
    }

    /// The same state after a restart.
    pub(crate) fn again(&self, operations: usize) -> Arc<Self> {
        let world = Self::lasting(operations);
        *world.held.lock().unwrap() = std::mem::take(&mut *self.held.lock().unwrap());
        world
    }

    /// The host of one run.
    pub(crate) fn host(self: &Arc<Self>, context: RunContext) -> Arc<dyn RunHost> {
        Arc::new(InMemory { world: Arc::clone(self), context: Arc::new(context) })
    }

    fn operation<T>(&self, act: impl FnOnce(&mut HostState) -> T) -> Result<T, HostError> {
        self.done.fetch_add(1, Ordering::SeqCst);
        let alive = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if alive {
            return Ok(act(&mut self.held.lock().unwrap()));
        }
        // Of the first operation that fails, only the answer may be lost.
        if self.lost_answer.swap(false, Ordering::SeqCst) {
            act(&mut self.held.lock().unwrap());
        }
        Err(HostError::unavailable("killed"))
    }

    pub(crate) fn events(&self) -> Vec<Recorded> {
        self.held.lock().unwrap().events.clone()
    }

    /// The types of one run's durable events, in order.
    pub(crate) fn types(&self, run_id: RunId) -> Vec<String> {
        let of_run = |event: &Recorded| event.run_id == run_id && !event.event_type.is_ephemeral();
        self.events().into_iter().filter(of_run).map(|event| event.event_type.to_string()).collect()
    }

    /// What readers of the log see, without what differs between attempts.
    pub(crate) fn story(&self) -> Vec<(String, Option<String>, Value)> {
        let story = self.events().into_iter().map(|event| {
            let mut payload: Value = serde_json::from_str(event.payload.as_str()).unwrap();
            for volatile in ["duration_ms", "checkpoint_id"] {
                payload.as_object_mut().unwrap().remove(volatile);
            }
            let is_checkpoint = event.event_type.is(EventKind::StateCheckpointed);
            let span = event.span_id.filter(|_| !is_checkpoint).map(|span| span.to_string());
            (event.event_type.to_string(), span, payload)
        });
        story.collect()
    }
}

struct InMemory {
    world: Arc<World>,
    context: Arc<RunContext>,
}

impl InMemory {
    fn after<'a, T: Send + 'a>(&'a self, act: impl FnOnce(&mut HostState) -> T + Send + 'a) -> Hosted<'a, T> {
        Box::pin(async move { self.world.operation(act) })
    }
}

impl RunHost for InMemory {
    fn context(&self) -> &Arc<RunContext> {
        &self.context
    }

    /// Stamped as the server stamps it. An event id that exists already adds no event.
    fn emit(&self, events: Vec<NewEvent>) -> Hosted<'_, ()> {
        Box::pin(async move {
            // Yields in every call, as real I/O would.
            tokio::task::yield_now().await;
            if events.iter().any(|event| Some(event.event_type.as_str()) == self.world.refuses) {
                return Err(HostError::refused("refused on purpose"));
            }
            self.world.operation(|held| {
                for event in events {
                    let is_known = |there: &Recorded| there.event_id.is_some() && there.event_id == event.event_id;
                    if held.events.iter().any(is_known) {
                        continue;
                    }
                    let seq = Seq::new(i64::try_from(held.events.len()).unwrap_or(i64::MAX));
                    held.events.push(Recorded::stamp(&self.context, event, seq, DateTime::UNIX_EPOCH));
                }
            })
        })
    }

    fn status(&self) -> Hosted<'_, Option<Status>> {
        self.after(|_| Some(Status::Running))
    }

    fn answer<'a>(&'a self, interrupt: &'a SpanId) -> Hosted<'a, Option<Answered>> {
        self.after(|held| held.answers.get(interrupt.as_str()).cloned())
    }

    fn spawn(&self, child: Child) -> Hosted<'_, RunContext> {
        self.after(move |_| RunContext {
            run_id: child.run_id,
            parent_run_id: Some(self.context.run_id),
            agent: Some(child.agent),
            role: Role::Worker,
            ..(*self.context).clone()
        })
    }

    fn ends<'a>(&'a self, runs: &'a [RunId]) -> Hosted<'a, Vec<ChildEnd>> {
        self.after(|held| {
            let end = |run: &RunId| held.ends.iter().find(|end| end.run_id == *run).cloned();
            runs.iter().filter_map(end).collect()
        })
    }

    fn cancel_below<'a>(&'a self, _: &'a str) -> Hosted<'a, ()> {
        self.after(|_| ())
    }

    fn latest_checkpoint(&self) -> Hosted<'_, Option<Checkpoint>> {
        self.after(|held| {
            let newest = held.checkpoints.iter().max_by_key(|new| new.checkpoint_id.clone())?;
            let blobs = newest.versions.0.iter().map(|(channel, version)| {
                let key = (channel.as_str().to_owned(), version.as_json().to_owned());
                (Channel::trusted(channel.as_str()), held.blobs[&key].clone())
            });
            let writes = held.writes.iter().filter(|writes| writes.checkpoint_id == newest.checkpoint_id);
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
                thread_id: state_thread(&self.context),
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
    }

    fn put_checkpoint(&self, new: NewCheckpoint) -> Hosted<'_, ()> {
        self.after(move |held| {
            for (channel, blob) in &new.blobs.0 {
                let key = (channel.as_str().to_owned(), blob.version.as_json().to_owned());
                held.blobs.entry(key).or_insert_with(|| blob.clone());
            }
            held.checkpoints.push(new);
        })
    }

    fn put_writes(&self, new: NewWrites) -> Hosted<'_, ()> {
        self.after(move |held| {
            let place = |writes: &NewWrites| (writes.checkpoint_id.clone(), writes.task_id.clone());
            if !held.writes.iter().any(|there| place(there) == place(&new)) {
                held.writes.push(new);
            }
        })
    }

    fn hold_state(&self) -> Hosted<'_, ()> {
        self.after(|_| ())
    }

    fn drop_state(&self) -> Hosted<'_, ()> {
        self.after(|held| held.checkpoints.clear())
    }

    fn keep_artifact<'a>(&'a self, name: &'a str, media_type: &'a str, bytes: Bytes) -> Hosted<'a, ArtifactRef> {
        Box::pin(async move {
            let size = bytes.len() as u64;
            let kept = self.world.operation(|held| {
                let artifacts = held.artifacts.as_mut()?;
                artifacts.push((name.to_owned(), media_type.to_owned(), bytes));
                Some(format!("a{}", artifacts.len()))
            })?;
            let artifact_id = kept.ok_or_else(|| HostError::refused("there is no room"))?;
            Ok(ArtifactRef { artifact_id, sha256: "00".to_owned(), size, media_type: media_type.to_owned() })
        })
    }

    fn read_artifact<'a>(&'a self, artifact_id: &'a str, from: u64, bytes_max: usize) -> Hosted<'a, Option<Piece>> {
        self.after(move |held| {
            let at: usize = artifact_id.strip_prefix('a')?.parse().ok()?;
            let (_, media_type, bytes) = held.artifacts.as_ref()?.get(at.checked_sub(1)?)?;
            let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
            let piece = bytes.slice(from..bytes.len().min(from.saturating_add(bytes_max)));
            Some(Piece { bytes: piece, size: bytes.len() as u64, media_type: media_type.clone() })
        })
    }
}

pub(crate) fn run_id(n: u32) -> RunId {
    RunId::from_str(&format!("0198c0de-0000-7000-8000-{n:012x}")).expect("well-formed")
}

pub(crate) fn context(n: u32, role: Role, agent: &str) -> RunContext {
    RunContext {
        run_id: run_id(n),
        root_run_id: run_id(1),
        parent_run_id: (n != 1).then(|| run_id(1)),
        owner_id: OwnerId::trusted("00ff"),
        thread_id: None,
        session_id: None,
        role,
        agent: Name::from_str(agent).ok(),
        origin: None,
        trace_id: None,
    }
}
