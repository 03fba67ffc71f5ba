//! What a graph is given here: the real parts with a watch on them, and a journal that keeps nothing for long.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use runreel::{
    agents::runtime::{StoreFacts, TimelineSink},
    app::App,
    clock::IdSource,
    domain::{
        checkpoint::{Blob, Checkpoint},
        context::{Role, RunContext},
        event::NewEvent,
        id::{Name, RunId, ThreadId},
        json::Json,
        principal::OwnerId,
        run::Spec,
    },
    emitters::{
        emitter::Emitter,
        identity::SupervisorEmitter,
        sink::{Sink, SinkError},
    },
    engine::{
        Graph, Next, State, Visit,
        graph::Flaw,
        journal::{Journal, JournalError, ThreadJournal},
        visit::Facts,
    },
    store::checkpoints::{NewCheckpoint, NewWrites},
    timeline::Timeline,
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A state of a channel that changes with every step and one that stays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) steps: u32,
    stays: String,
}

impl Default for Count {
    fn default() -> Self {
        Self { steps: 0, stays: "x".repeat(300) }
    }
}

impl State for Count {
    type Update = u32;

    fn apply(&mut self, more: u32) {
        self.steps += more;
    }
}

/// A graph of one node that does nothing, so many times.
pub(crate) fn idle(visits: &Arc<Mutex<Vec<Instant>>>, count: u32) -> Result<Graph<Count>, Flaw> {
    let visits = Arc::clone(visits);
    Graph::new("idle", "nothing")
        .node("nothing", move |_: Visit<Count>| {
            lock(&visits).push(Instant::now());
            async { Ok(1) }
        })
        .choice("nothing", &["nothing"], move |state| if state.steps < count { Next::To("nothing") } else { Next::End })
        .build()
}

/// How long the calls took.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) checkpoints: Vec<Duration>,
    pub(crate) writes: Vec<Duration>,
    pub(crate) emissions: Vec<Duration>,
}

/// A journal or a sink with a watch on it.
pub(crate) struct Timed<T> {
    pub(crate) inner: T,
    pub(crate) waits: Arc<Mutex<Waits>>,
}

impl Journal for Timed<ThreadJournal> {
    fn latest(&self) -> BoxFuture<'_, Result<Option<Checkpoint>, JournalError>> {
        self.inner.latest()
    }

    fn put(&self, new: NewCheckpoint) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async {
            let began = Instant::now();
            let put = self.inner.put(new).await;
            lock(&self.waits).checkpoints.push(began.elapsed());
            put
        })
    }

    fn write(&self, new: NewWrites) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async {
            let began = Instant::now();
            let written = self.inner.write(new).await;
            lock(&self.waits).writes.push(began.elapsed());
            written
        })
    }

    fn thread(&self) -> &ThreadId {
        self.inner.thread()
    }
}

impl Sink for Timed<TimelineSink> {
    fn emit<'a>(&'a self, context: &'a RunContext, events: Vec<NewEvent>) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            let began = Instant::now();
            let emitted = self.inner.emit(context, events).await;
            lock(&self.waits).emissions.push(began.elapsed());
            emitted
        })
    }
}

/// Keeps everything it is given as long as it lives.
#[derive(Debug)]
pub(crate) struct InMemory {
    thread: ThreadId,
    checkpoints: Mutex<Vec<NewCheckpoint>>,
    blobs: Mutex<BTreeMap<(String, String), Blob>>,
    writes: Mutex<Vec<NewWrites>>,
}

impl Default for InMemory {
    fn default() -> Self {
        let thread = ThreadId::trusted("in-memory");
        Self { thread, checkpoints: Mutex::default(), blobs: Mutex::default(), writes: Mutex::default() }
    }
}

impl Journal for InMemory {
    /// Every graph here begins anew.
    fn latest(&self) -> BoxFuture<'_, Result<Option<Checkpoint>, JournalError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn put(&self, mut new: NewCheckpoint) -> BoxFuture<'_, Result<(), JournalError>> {
        for (channel, blob) in std::mem::take(&mut new.blobs.0) {
            let key = (channel.as_str().to_owned(), blob.version.as_json().to_owned());
            lock(&self.blobs).insert(key, blob);
        }
        lock(&self.checkpoints).push(new);
        Box::pin(std::future::ready(Ok(())))
    }

    fn write(&self, new: NewWrites) -> BoxFuture<'_, Result<(), JournalError>> {
        lock(&self.writes).push(new);
        Box::pin(std::future::ready(Ok(())))
    }

    fn thread(&self) -> &ThreadId {
        &self.thread
    }
}

/// The program's parts in this process.
#[derive(Debug)]
pub(crate) struct Ground {
    timeline: Timeline,
    options: PgConnectOptions,
}

impl Ground {
    pub(crate) fn new(app: &App) -> Self {
        Self { timeline: app.server().timeline.clone(), options: app.database().options.clone() }
    }

    pub(crate) fn ids(&self) -> IdSource {
        self.timeline.ids().clone()
    }

    /// A run with a thread of its own.
    pub(crate) async fn open_run(&self) -> anyhow::Result<Arc<RunContext>> {
        let run_id = RunId::trusted(self.timeline.ids().uuid());
        let context = RunContext {
            run_id,
            root_run_id: run_id,
            parent_run_id: None,
            owner_id: OwnerId::derive(b"a pepper", "bench", "engine"),
            thread_id: Some(ThreadId::trusted(&format!("thread-{run_id}"))),
            session_id: None,
            role: Role::Agent,
            agent: Some(Name::trusted("idle")),
            origin: None,
            trace_id: None,
        };
        let spec = Spec {
            context: context.clone(),
            title: None,
            input: None,
            metadata: Json::empty(),
            tags: Vec::new(),
            lease_ms: None,
            start: true,
        };
        let hash = spec.content_hash();
        self.timeline.open_run(spec, hash).await?;
        Ok(Arc::new(context))
    }

    pub(crate) fn journal(&self, context: &RunContext) -> ThreadJournal {
        ThreadJournal {
            store: self.timeline.store().clone(),
            clock: self.timeline.clock().clone(),
            owner: context.owner_id.clone(),
            thread: ThreadId::trusted(&format!("thread-{}", context.run_id)),
        }
    }

    pub(crate) fn facts(&self, context: &RunContext) -> Arc<dyn Facts> {
        Arc::new(StoreFacts::new(self.timeline.store().clone(), context))
    }

    pub(crate) fn emitter(&self, context: &RunContext, waits: &Arc<Mutex<Waits>>) -> anyhow::Result<Arc<dyn Emitter>> {
        let sink = Timed { inner: TimelineSink::new(self.timeline.clone(), PATIENCE), waits: Arc::clone(waits) };
        Ok(Arc::new(SupervisorEmitter::new(context.clone(), "bench", Arc::new(sink))?.repeatable()))
    }

    /// Checkpoints and events of a run, counted in the tables.
    pub(crate) async fn stored(&self, context: &RunContext) -> anyhow::Result<(i64, i64)> {
        let mut database = PgConnection::connect_with(&self.options).await?;
        let counted = sqlx::query_as(
            "select (select count(*) from store.checkpoint where run_id = $1),
                    (select count(*) from store.run_event where run_id = $1::uuid)",
        );
        let counted = counted.bind(context.run_id.to_string()).fetch_one(&mut database).await?;
        database.close().await?;
        Ok(counted)
    }
}
