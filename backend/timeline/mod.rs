//! The product as a Rust API: one way in, one way out.
//!
//! * In: [`Timeline::emit_run_event`] (and [`Timeline::open_run`], which emits a run's first events, and
//!   [`Timeline::import_run`], whose events are already numbered). Nothing else can append to the log or publish on the
//!   bus: [`store::append::Appenders`] and [`crate::bus::Publisher`] are values that exist once, held here.
//! * Out: [`Timeline::follow_run`] and [`Timeline::follow_feed`], both the same [`follow::Follower`].
//!
//! Invariants: an event is committed before any reader sees it; readers see events in commit order; per run the seqs
//! are 1, 2, 3 …; an acknowledged event is never lost, and a refused one never appears.
//!
//! * [`Timeline::ready`] reports whether events can be stored.
//!
//! Start reading at [`emit`] (and [`artifacts`], for payloads that are too large), then [`plan`] (numbering, pure),
//! [`writer`] (the lane), [`publish`] (the gate to the bus), [`relay`] and [`texts`] (other processes) and [`follow`].

pub mod artifacts;
mod cancel;
pub mod emit;
pub mod follow;
pub mod health;
mod history;
mod holding;
pub mod import;
pub mod interrupts;
mod learn;
pub mod live;
mod marks;
pub mod open;
mod pages;
pub mod plan;
mod publish;
mod recover;
mod relay;
pub mod resume;
mod signal;
mod stalls;
mod texts;
mod write_queue;
mod writer;

use std::{
    path::PathBuf,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use lru::LruCache;
use tokio::sync::{Mutex, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::{
    emit::AppendRequest,
    health::Health,
    history::Forks,
    live::{Live, LiveKey},
    marks::Marks,
    publish::Gate,
    texts::Texts,
    write_queue::WriteQueue,
};
use crate::{
    artifacts::Artifacts,
    bus::Bus,
    clock::{Clock, IdSource},
    domain::{
        context::RunContext,
        cursor::{FeedCursor, RunCursor},
        history::Histories,
        id::{RunId, Seq},
        limits::{
            CONTEXTS_MAX, EMISSIONS_KIB_MAX, EMISSIONS_OWN_KIB_MAX, EMISSIONS_OWN_MAX, INTERRUPT_SWEEP_MS,
            LANE_QUEUE_MAX, REPLAYS_MAX, REPLAYS_OWN_MAX, STALL_SWEEP_MS,
        },
        principal::OwnerId,
    },
    quota::Quota,
    store::{self, Store, append::Appenders, runs::RunRecord},
    supervise::Supervisor,
};

/// Settings of the timeline.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Frames a topic keeps for readers that are behind.
    pub bus_frames: usize,
    /// How often other processes' commits are polled for without a wake-up.
    pub poll: Duration,
    /// The database's own id.
    pub home: Uuid,
    /// Where this server records how far the log has come; a folder that is not restored together with the database.
    pub marks_dir: PathBuf,
    /// Set by the operator after the database was set back.
    pub new_history: bool,
    /// A folder on the volume that holds the database, if this process can see it.
    pub volume: Option<PathBuf>,
    /// A message bus for open texts, and the key that authenticates its messages.
    pub live: Option<(Arc<dyn Live>, LiveKey)>,
}

/// A handle to the timeline. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Timeline {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    artifacts: Artifacts,
    gate: Gate,
    texts: Texts,
    contexts: Contexts,
    lanes: Vec<mpsc::Sender<AppendRequest>>,
    /// Requests that wait for the lanes.
    waiting: Quota,
    /// Their size, KiB.
    waiting_kib: Quota,
    /// Readers that hold a page of the log in memory.
    replays: Quota,
    /// Readers that hold more than `STREAM_FREE_BYTES` of live frames.
    large_frames: Quota,
    clock: Clock,
    ids: IdSource,
    health: Health,
    volume: Option<PathBuf>,
    supervisor: Supervisor,
    /// Held while an imported run is placed in its tree.
    births: Mutex<()>,
    draining: CancellationToken,
}

impl Timeline {
    /// Starts the lanes and the relay under `supervisor`; they end when it stops and their work is done.
    ///
    /// `draining` ends every stream; it is cancelled first, while emits in flight still finish.
    pub async fn start(
        (store, appenders): (Store, Appenders),
        artifacts: Artifacts,
        settings: Settings,
        clock: Clock,
        ids: IdSource,
        supervisor: Supervisor,
        draining: CancellationToken,
    ) -> Result<Self, store::Error> {
        let marks = Marks::of(&settings.marks_dir, &settings.home.simple().to_string());
        let standing = history::at_start(&store, &marks, &ids, settings.new_history).await?;
        let gate = Gate::new(settings.bus_frames, &standing.tail, standing.histories, ids.uuid());
        let contexts = Contexts::new(store.clone());
        let health = Health::new(standing.tail.lanes().count());
        let forks = Forks {
            store: store.clone(),
            gate: gate.clone(),
            contexts: contexts.clone(),
            marks: marks.clone(),
            ids: ids.clone(),
            health: health.clone(),
        };
        let parts = writer::Parts {
            store: store.clone(),
            appenders: Arc::new(appenders),
            gate: gate.clone(),
            contexts: contexts.clone(),
            clock: clock.clone(),
            wakeup: relay::WakeupSender::default(),
            health: health.clone(),
            forks: forks.clone(),
        };
        let stop = supervisor.stop().clone();
        let lanes = standing.tail.lanes().map(|(lane, _)| start_lane(lane, &parts, &supervisor)).collect();
        let process = ids.uuid().simple().to_string();
        let texts = Texts::new(store.clone(), gate.clone(), contexts.clone(), process.clone());
        let texts = texts.start(settings.live, &supervisor);
        let relay = relay::Relay { forks, texts: texts.clone(), process };
        relay.start(&supervisor, parts.wakeup.clone(), settings.poll);
        supervisor.keep("marks", {
            let (gate, stop) = (gate.clone(), stop.clone());
            move || marks.clone().keep(gate.clone(), stop.clone())
        });
        let shared = Shared {
            store,
            artifacts,
            gate,
            texts,
            contexts,
            lanes,
            waiting: Quota::new(Semaphore::MAX_PERMITS, EMISSIONS_OWN_MAX),
            waiting_kib: Quota::new(EMISSIONS_KIB_MAX, EMISSIONS_OWN_KIB_MAX),
            replays: Quota::new(REPLAYS_MAX, REPLAYS_OWN_MAX),
            large_frames: Quota::new(REPLAYS_MAX, REPLAYS_OWN_MAX),
            clock,
            ids,
            health,
            volume: settings.volume,
            supervisor: supervisor.clone(),
            births: Mutex::new(()),
            draining,
        };
        let timeline = Self { shared: Arc::new(shared) };
        let at_once = |ms| (Duration::ZERO, Duration::from_millis(ms));
        supervisor.every("interrupts", at_once(INTERRUPT_SWEEP_MS), timeline.clone(), |timeline, ()| {
            Box::pin(timeline.expire_interrupts())
        });
        supervisor.every("stalled runs", at_once(STALL_SWEEP_MS), timeline.clone(), |timeline, silent| {
            Box::pin(timeline.tell_stalls(silent))
        });
        Ok(timeline)
    }

    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    pub fn bus(&self) -> &Bus {
        self.shared.gate.bus()
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub fn ids(&self) -> &IdSource {
        &self.shared.ids
    }

    /// Whether this process is stopping: it accepts no more events, while another process may.
    pub fn is_stopping(&self) -> bool {
        self.shared.supervisor.stop().is_cancelled()
    }

    /// How far every lane has been published here.
    pub fn tail(&self) -> FeedCursor {
        self.shared.gate.tail()
    }

    /// Changes when the status of any run, of any owner and in any process, may have changed: only a hint to check.
    pub fn run_changes(&self) -> watch::Receiver<()> {
        self.shared.gate.run_changes()
    }

    /// The identity of a run of this owner; `None` if it does not exist or belongs to another owner.
    pub async fn context(&self, owner: &OwnerId, run: RunId) -> Result<Option<Arc<RunContext>>, store::Error> {
        if let Some(context) = self.shared.contexts.known(run, owner.as_str()) {
            return Ok(Some(context));
        }
        let record = self.shared.store.runs().get(owner, run).await?;
        Ok(record.map(|record| self.shared.contexts.remember(record.context)))
    }

    /// The identity of a run of any owner; for callers that decide themselves whether it may be revealed.
    pub async fn any_context(&self, run: RunId) -> Result<Option<RunContext>, store::Error> {
        Ok(self.shared.store.runs().contexts(&[run]).await?.pop())
    }

    /// The histories of the log as this process knows it.
    ///
    /// A request reads them once, before anything else: the reader's cursor is checked and its ids are written under
    /// them, and data of another history is not sent to it.
    pub fn histories(&self) -> Arc<Histories> {
        self.shared.gate.histories()
    }

    /// Returns whether a reader's cursor is part of the run's log under these histories.
    ///
    /// Whether these histories are still current is checked with the next page read.
    pub async fn admits(
        &self,
        owner: &OwnerId,
        run: RunId,
        cursor: RunCursor,
        histories: &Histories,
    ) -> Result<bool, store::Error> {
        if histories.current().is_first() || cursor.seq == Seq::ZERO {
            return Ok(histories.contains(cursor.history));
        }
        let place = self.shared.store.events().position_of(owner, run, cursor.seq).await?;
        // For an event that does not exist, or no longer does, the history it was written in is unknown.
        let written = place.map_or(histories.current(), |(lane, position)| histories.of_position(lane, position));
        Ok(written == cursor.history)
    }

    /// One run of this owner.
    pub async fn run(&self, owner: &OwnerId, run: RunId) -> Result<Option<RunRecord>, store::Error> {
        self.shared.store.runs().get(owner, run).await
    }

    /// Deletes an ended run, and what this process has cached of it.
    pub async fn delete_run(&self, owner: &OwnerId, run: RunId) -> Result<store::retention::Removal, store::Error> {
        let removal = self.shared.store.delete_run(owner, run).await?;
        self.forget(&[run]);
        Ok(removal)
    }

    /// Drops the open texts of a run whose writer has stopped.
    pub fn end_texts(&self, run: RunId) {
        self.shared.gate.end_texts(run);
    }

    /// Drops what this process has cached of runs that were removed.
    pub fn forget(&self, runs: &[RunId]) {
        for run in runs {
            self.shared.contexts.forget(*run);
        }
    }
}

/// Starts a lane; its queue survives a panic of its task.
fn start_lane(lane: u8, parts: &writer::Parts, supervisor: &Supervisor) -> mpsc::Sender<AppendRequest> {
    let (sender, receiver) = mpsc::channel(LANE_QUEUE_MAX);
    let queue = Arc::new(Mutex::new(WriteQueue::new(receiver, parts.store.throttle().clone())));
    let (parts, stop) = (parts.clone(), supervisor.stop().clone());
    supervisor.keep("writer", move || {
        let (lane, queue, stop) = (writer::Lane::new(lane, parts.clone()), Arc::clone(&queue), stop.clone());
        async move { lane.run(&mut *queue.lock().await, stop).await }
    });
    sender
}

/// A cache of run contexts. A run's context never changes, unless the run is deleted and its id reused. So a lookup
/// names the owner, and a context of another owner is a miss.
#[derive(Clone, Debug)]
pub(crate) struct Contexts {
    known: Arc<std::sync::Mutex<LruCache<RunId, Arc<RunContext>>>>,
    store: Store,
}

impl Contexts {
    fn new(store: Store) -> Self {
        Self { known: Arc::new(std::sync::Mutex::new(LruCache::new(CONTEXTS_MAX))), store }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<RunId, Arc<RunContext>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, run: RunId, owner: &str) -> Option<Arc<RunContext>> {
        self.lock().get(&run).filter(|context| context.owner_id.as_str() == owner).cloned()
    }

    fn remember(&self, context: RunContext) -> Arc<RunContext> {
        let context = Arc::new(context);
        self.lock().put(context.run_id, Arc::clone(&context));
        context
    }

    fn forget(&self, run: RunId) {
        self.lock().pop(&run);
    }

    fn forget_all(&self) {
        self.lock().clear();
    }

    /// Loads the contexts of these runs into the cache, except those already cached for these owners.
    async fn learn<'a>(&self, runs: impl Iterator<Item = (RunId, &'a str)>) -> Result<(), store::Error> {
        let unknown = runs.filter(|(run, owner)| self.known(*run, owner).is_none());
        self.load(unknown.map(|(run, _)| run).collect()).await
    }

    fn unknown(&self, runs: &[RunId]) -> Vec<RunId> {
        let known = self.lock();
        runs.iter().copied().filter(|run| !known.contains(run)).collect()
    }

    /// The contexts of these runs, of any owner, as far as the runs exist.
    async fn of_any(&self, runs: &[RunId]) -> Result<Vec<Arc<RunContext>>, store::Error> {
        self.load(self.unknown(runs)).await?;
        let mut known = self.lock();
        Ok(runs.iter().filter_map(|run| known.get(run).cloned()).collect())
    }

    async fn load(&self, mut missing: Vec<RunId>) -> Result<(), store::Error> {
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            for context in self.store.runs().contexts(&missing).await? {
                self.remember(context);
            }
        }
        Ok(())
    }
}
