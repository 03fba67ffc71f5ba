//! The product as a Rust API: one way in, one way out.
//!
//! * In: [`Timeline::emit_run_event`] (and [`Timeline::open_run`], which emits a run's first events, and
//!   [`Timeline::import_run`], whose events come with their numbers). Nothing else appends to the store or publishes on the bus; `tests/it/tidy.rs` proves it.
//! * Out: [`Timeline::follow_run`] and [`Timeline::follow_feed`], both the same [`follow::Follower`].
//!
//! Invariants kept here: an event is committed before anybody sees it and seen by readers in commit order; per run the
//! seqs are 1, 2, 3 …; what was acknowledged is never lost and what was refused never appears.
//!
//! Start reading at [`emit`] (and [`artifacts`], for what is too large), then [`plan`] (numbering, pure), [`writer`] (the lane), [`publish`] (the gate to the
//! bus), [`relay`] (other processes) and [`follow`].

pub mod artifacts;
mod cancel;
pub mod emit;
pub mod follow;
pub mod import;
pub mod interrupts;
mod pages;
pub mod plan;
pub mod publish;
mod recover;
mod relay;
mod writer;

use std::{sync::Arc, time::Duration};

use tokio::sync::{Mutex, mpsc, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{emit::Emission, publish::Publisher};
use crate::{
    artifacts::Artifacts,
    bus::Bus,
    clock::{Clock, IdSource},
    domain::{
        context::RunContext,
        event::Recorded,
        id::RunId,
        limits::{CONTEXTS_MAX, LANE_QUEUE_MAX},
        principal::OwnerId,
    },
    store::{self, Store, events::Placed, runs::RunRecord},
};

/// How the timeline runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Frames a topic keeps for readers that are behind.
    pub bus_frames: usize,
    /// How often other processes' commits are looked for when no bell rings.
    pub poll: Duration,
}

/// A handle on the timeline. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Timeline {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    artifacts: Artifacts,
    publisher: Publisher,
    contexts: Contexts,
    lanes: Vec<mpsc::Sender<Emission>>,
    clock: Clock,
    ids: IdSource,
    /// Held while an imported run finds its place in its tree.
    births: Mutex<()>,
    draining: CancellationToken,
}

impl Timeline {
    /// Starts the lanes and the relay on `tasks`; they end when `stop` is cancelled and their work is done.
    ///
    /// `draining` ends every stream; it is cancelled first, while emits in flight still finish.
    #[expect(clippy::too_many_arguments, reason = "the parts it is composed of, once")]
    pub async fn start(
        store: Store,
        artifacts: Artifacts,
        settings: Settings,
        clock: Clock,
        ids: IdSource,
        tasks: &TaskTracker,
        draining: CancellationToken,
        stop: CancellationToken,
    ) -> Result<Self, store::Error> {
        let tail = store.feed_tail().await?;
        let publisher = Publisher::new(Bus::new(settings.bus_frames), &tail);
        let contexts = Contexts::new(store.clone());
        let process = ids.uuid().simple().to_string();
        let bell = relay::Bell::default();
        let mut lanes = Vec::new();
        for (lane, _) in tail.lanes() {
            let (sender, receiver) = mpsc::channel(LANE_QUEUE_MAX);
            let lane = writer::Lane::new(
                lane,
                store.clone(),
                publisher.clone(),
                contexts.clone(),
                clock.clone(),
                bell.clone(),
            );
            tasks.spawn(lane.run(receiver, stop.clone()));
            lanes.push(sender);
        }
        let relay =
            relay::Relay { store: store.clone(), publisher: publisher.clone(), contexts: contexts.clone(), process };
        tasks.spawn(relay.clone().ring(bell, stop.clone()));
        tasks.spawn(relay.listen(settings.poll, stop.clone()));
        let births = Mutex::new(());
        let shared = Shared { store, artifacts, publisher, contexts, lanes, clock, ids, births, draining };
        let timeline = Self { shared: Arc::new(shared) };
        tasks.spawn(timeline.clone().watch_interrupts(stop));
        Ok(timeline)
    }

    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    pub fn bus(&self) -> &Bus {
        self.shared.publisher.bus()
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub fn ids(&self) -> &IdSource {
        &self.shared.ids
    }

    /// Changes when the life of some run may have, of any owner and in any process: a reason to look, and no more.
    pub fn lives(&self) -> watch::Receiver<()> {
        self.shared.publisher.lives()
    }

    /// The identity of a run of this owner; `None` alike for an absent run and somebody else's.
    pub async fn context(&self, owner: &OwnerId, run: RunId) -> Result<Option<Arc<RunContext>>, store::Error> {
        if let Some(context) = self.shared.contexts.known(run, owner.as_str()) {
            return Ok(Some(context));
        }
        let record = self.shared.store.run(owner, run).await?;
        Ok(record.map(|record| self.shared.contexts.remember(record.context)))
    }

    /// The identity of a run of whomever; for callers that decide themselves whether it may be known.
    pub async fn any_context(&self, run: RunId) -> Result<Option<RunContext>, store::Error> {
        Ok(self.shared.store.contexts(&[run]).await?.pop())
    }

    /// One run of this owner.
    pub async fn run(&self, owner: &OwnerId, run: RunId) -> Result<Option<RunRecord>, store::Error> {
        self.shared.store.run(owner, run).await
    }

    /// Deletes an ended run and everything this process remembers of it.
    pub async fn delete_run(&self, owner: &OwnerId, run: RunId) -> Result<store::retention::Removal, store::Error> {
        let removal = self.shared.store.delete_run(owner, run).await?;
        self.shared.contexts.forget(run);
        Ok(removal)
    }
}

/// Contexts of runs seen lately. A run's context never changes. Only when a run is deleted and its id used again does
/// another context take its place, so whoever asks names the owner, and a context of another owner is not known.
#[derive(Clone, Debug)]
pub(crate) struct Contexts {
    known: moka::sync::Cache<RunId, Arc<RunContext>>,
    store: Store,
}

impl Contexts {
    fn new(store: Store) -> Self {
        Self { known: moka::sync::Cache::new(CONTEXTS_MAX), store }
    }

    fn known(&self, run: RunId, owner: &str) -> Option<Arc<RunContext>> {
        self.known.get(&run).filter(|context| context.owner_id.as_str() == owner)
    }

    fn remember(&self, context: RunContext) -> Arc<RunContext> {
        let context = Arc::new(context);
        self.known.insert(context.run_id, Arc::clone(&context));
        context
    }

    fn forget(&self, run: RunId) {
        self.known.invalidate(&run);
    }

    /// Makes sure that the contexts of these events' runs are known, as far as the runs exist.
    async fn learn(&self, events: &[Placed]) -> Result<(), store::Error> {
        let unknown = |event: &Recorded| self.known(event.run_id, &event.owner_id).is_none();
        let mut missing: Vec<RunId> =
            events.iter().filter(|(_, event)| unknown(event)).map(|(_, event)| event.run_id).collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            for context in self.store.contexts(&missing).await? {
                self.remember(context);
            }
        }
        Ok(())
    }
}
