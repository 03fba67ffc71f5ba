//! What a graph is given here: the real parts with a watch on them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use runreel::{
    agents::runtime::LocalHost,
    app::App,
    clock::IdSource,
    domain::{
        checkpoint::Checkpoint,
        context::{Role, RunContext},
        event::NewEvent,
        id::{Name, RunId, SpanId, ThreadId},
        principal::OwnerId,
        run::{RunFields, Spec, Status},
    },
    emitters::host::{Answered, ArtifactRef, Child, ChildEnd, Hosted, Piece, RunHost},
    engine::{Graph, Next, NodeContext, State, graph::InvalidGraph},
    store::checkpoints::{NewCheckpoint, NewWrites},
    threads::Threads,
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
pub(crate) fn idle(visits: &Arc<Mutex<Vec<Instant>>>, count: u32) -> Result<Graph<Count>, InvalidGraph> {
    let visits = Arc::clone(visits);
    Graph::new("idle", "nothing")
        .node("nothing", move |_: NodeContext<Count>| {
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

/// A host with a watch on it.
struct Timed {
    host: LocalHost,
    waits: Arc<Mutex<Waits>>,
}

impl RunHost for Timed {
    fn context(&self) -> &Arc<RunContext> {
        self.host.context()
    }

    fn emit(&self, events: Vec<NewEvent>) -> Hosted<'_, ()> {
        Box::pin(async {
            let began = Instant::now();
            let emitted = self.host.emit(events).await;
            lock(&self.waits).emissions.push(began.elapsed());
            emitted
        })
    }

    fn put_checkpoint(&self, new: NewCheckpoint) -> Hosted<'_, ()> {
        Box::pin(async {
            let began = Instant::now();
            let put = self.host.put_checkpoint(new).await;
            lock(&self.waits).checkpoints.push(began.elapsed());
            put
        })
    }

    fn put_writes(&self, new: NewWrites) -> Hosted<'_, ()> {
        Box::pin(async {
            let began = Instant::now();
            let written = self.host.put_writes(new).await;
            lock(&self.waits).writes.push(began.elapsed());
            written
        })
    }

    fn latest_checkpoint(&self) -> Hosted<'_, Option<Checkpoint>> {
        self.host.latest_checkpoint()
    }

    fn status(&self) -> Hosted<'_, Option<Status>> {
        self.host.status()
    }

    fn answer<'a>(&'a self, interrupt: &'a SpanId) -> Hosted<'a, Option<Answered>> {
        self.host.answer(interrupt)
    }

    fn spawn(&self, child: Child) -> Hosted<'_, RunContext> {
        self.host.spawn(child)
    }

    fn ends<'a>(&'a self, runs: &'a [RunId]) -> Hosted<'a, Vec<ChildEnd>> {
        self.host.ends(runs)
    }

    fn cancel_below<'a>(&'a self, reason: &'a str) -> Hosted<'a, ()> {
        self.host.cancel_below(reason)
    }

    fn hold_state(&self) -> Hosted<'_, ()> {
        self.host.hold_state()
    }

    fn drop_state(&self) -> Hosted<'_, ()> {
        self.host.drop_state()
    }

    fn keep_artifact<'a>(&'a self, name: &'a str, media_type: &'a str, bytes: Bytes) -> Hosted<'a, ArtifactRef> {
        self.host.keep_artifact(name, media_type, bytes)
    }

    fn read_artifact<'a>(&'a self, artifact_id: &'a str, from: u64, bytes_max: usize) -> Hosted<'a, Option<Piece>> {
        self.host.read_artifact(artifact_id, from, bytes_max)
    }
}

/// The program's parts in this process.
#[derive(Debug)]
pub(crate) struct Ground {
    timeline: Timeline,
    threads: Threads,
    options: PgConnectOptions,
}

impl Ground {
    pub(crate) fn new(app: &App) -> Self {
        let (server, options) = (app.server(), app.database().options.clone());
        Self { timeline: server.timeline.clone(), threads: server.threads.clone(), options }
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
        let spec = Spec { context: context.clone(), fields: RunFields::default(), start: true };
        let hash = spec.content_hash();
        self.timeline.open_run(spec, hash).await?;
        Ok(Arc::new(context))
    }

    pub(crate) fn host(&self, context: &Arc<RunContext>, waits: &Arc<Mutex<Waits>>) -> Arc<dyn RunHost> {
        let host = LocalHost::new(self.timeline.clone(), self.threads.clone(), Arc::clone(context)).patient(PATIENCE);
        Arc::new(Timed { host, waits: Arc::clone(waits) })
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
