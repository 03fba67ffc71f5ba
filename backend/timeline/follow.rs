//! The one way out: a reader's stream, from its cursor through past events to live ones.
//!
//! A [`Follower`] subscribes to the bus when it is created, before it reads anything. Then it executes the steps of
//! [`Splice`]: page, go live, deliver. It holds no database connection between two pages and none while it is live.
//! [`Follower::next`] may be dropped and called again at any time: nothing is lost, because everything received is
//! applied at once.

mod shown;
#[cfg(test)]
mod simulation;

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

pub use super::signal::{StreamItem, StreamOptions};
use super::{Timeline, holding::Holding, pages::Source, publish::Gate};
use crate::{
    bus::{BusMessage, Frame, Subscription, Topic},
    domain::{
        context::RunContext,
        cursor::FeedCursor,
        history::Histories,
        id::{RunId, Seq},
        limits::EVENT_PAGE_BYTES_MAX,
        principal::OwnerId,
        run::Status,
        splice::{Input, ReadPosition, Splice, Step},
    },
    quota::Quota,
    store::{self, feed},
};

/// Rows of the first page: few, so that the first byte is sent soon.
const FIRST_PAGE_ROWS: i64 = 200;
/// Pause before a failed database is queried again.
const PAUSE: Duration = Duration::from_millis(250);
/// Most frames taken from the bus at once, sent or not.
const DRAINED_MAX: usize = 256;

/// What a reader follows.
#[derive(Clone, Debug)]
pub enum Scope {
    Run(Arc<RunContext>),
    Feed(feed::Scope),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Query,
    GoLive,
    Live,
    /// The stream is over.
    Closed,
}

/// What followers share.
#[derive(Debug)]
struct Parts {
    source: Arc<dyn Source>,
    gate: Gate,
    /// Places for readers that hold a page of the log, and for those with more than `STREAM_FREE_BYTES` of live frames.
    places: (Quota, Quota),
    draining: CancellationToken,
}

/// One reader.
#[derive(Debug)]
pub struct Follower {
    parts: Parts,
    owner: OwnerId,
    scope: Scope,
    options: StreamOptions,
    subscription: Subscription,
    splice: Splice,
    todo: Phase,
    /// The histories under which the reader's cursor was admitted.
    histories: Arc<Histories>,
    floor: FeedCursor,
    rows: i64,
    /// The runs of a tree, and those of them that have not ended.
    members: HashSet<RunId>,
    live: HashSet<RunId>,
    /// How the run that ends the stream has ended.
    ended: Option<(Status, Seq)>,
    /// The items to return next.
    ready: Vec<StreamItem>,
    /// What the items returned last keep in memory.
    held: Holding,
    /// Whether open texts of other processes were requested; from then on they arrive like all others.
    has_asked: bool,
}

impl Timeline {
    /// Follows one run after a seq that was admitted under these histories.
    pub fn follow_run(
        &self,
        context: Arc<RunContext>,
        after: Seq,
        histories: Arc<Histories>,
        options: StreamOptions,
    ) -> Follower {
        self.follower(context.owner_id.clone(), Scope::Run(context), ReadPosition::Run(after), histories, options)
    }

    /// Follows many runs of an owner after a cursor that was admitted under these histories.
    ///
    /// `removed` is how far retention has deleted; a reader with a cursor behind it is sent a gap.
    pub fn follow_feed(
        &self,
        owner: OwnerId,
        scope: feed::Scope,
        after: FeedCursor,
        removed: &FeedCursor,
        histories: Arc<Histories>,
        options: StreamOptions,
    ) -> Follower {
        let behind = after != FeedCursor::start() && removed.is_ahead_of(&after);
        let gap = behind.then(|| StreamItem::Gap { requested_after: after.to_string(), first_seq: None });
        let follower = self.follower(owner, Scope::Feed(scope), ReadPosition::Feed(after), histories, options);
        Follower { ready: gap.into_iter().collect(), ..follower }
    }

    fn follower(
        &self,
        owner: OwnerId,
        scope: Scope,
        track: ReadPosition,
        histories: Arc<Histories>,
        options: StreamOptions,
    ) -> Follower {
        let shared = &self.shared;
        let parts = Parts {
            source: Arc::new(self.clone()),
            gate: shared.gate.clone(),
            places: (shared.replays.clone(), shared.large_frames.clone()),
            draining: shared.draining.clone(),
        };
        Follower::new(parts, owner, scope, track, histories, options)
    }
}

impl Follower {
    fn new(
        parts: Parts,
        owner: OwnerId,
        scope: Scope,
        track: ReadPosition,
        histories: Arc<Histories>,
        options: StreamOptions,
    ) -> Self {
        let topic = if let Scope::Run(context) = &scope { Topic::Run(context.run_id) } else { Topic::Everything };
        Self {
            subscription: parts.gate.bus().subscribe(owner.clone(), topic),
            parts,
            owner,
            scope,
            options,
            splice: Splice::new(track),
            todo: Phase::Query,
            histories,
            floor: FeedCursor::start(),
            rows: FIRST_PAGE_ROWS,
            members: HashSet::new(),
            live: HashSet::new(),
            ended: None,
            ready: Vec::new(),
            held: Holding::default(),
            has_asked: false,
        }
    }

    /// The reader's position.
    pub fn position(&self) -> &ReadPosition {
        self.splice.track()
    }

    /// The next items, never an empty list; `None` when the stream is over.
    pub async fn next(&mut self) -> Option<Vec<StreamItem>> {
        let draining = self.parts.draining.clone();
        loop {
            if !self.ready.is_empty() {
                return Some(std::mem::take(&mut self.ready));
            }
            // The items returned before have been written, so they are no longer held.
            self.held = Holding::default();
            let todo = self.todo;
            let work = async {
                match todo {
                    // Boxed: a page's state is large, and most readers are live most of the time.
                    Phase::Query => Box::pin(self.query()).await,
                    Phase::GoLive => self.go_live().await,
                    Phase::Live => self.listen().await,
                    Phase::Closed => Vec::new(),
                }
            };
            self.ready = match draining.run_until_cancelled(work).await {
                _ if todo == Phase::Closed => return None,
                Some(signals) => signals,
                None => {
                    self.todo = Phase::Closed;
                    vec![StreamItem::Draining]
                }
            };
        }
    }

    async fn query(&mut self) -> Vec<StreamItem> {
        self.held.page(&self.parts.places.0, &self.owner).await;
        // The tree is read before the page: a run that ends in between counts as live until its end is delivered.
        if let Scope::Feed(feed::Scope::Tree(root)) = self.scope {
            match self.parts.source.tree(&self.owner, root).await {
                Ok(tree) => self.learn_tree(&tree),
                Err(error) => return self.pause(&error).await,
            }
        }
        let (track, histories) = (self.splice.track(), &self.histories);
        let page = match self.parts.source.page(&self.owner, &self.scope, track, self.rows, histories).await {
            Ok(Some(page)) => page,
            Ok(None) => {
                // The run was deleted while it was read.
                self.todo = Phase::Closed;
                return Vec::new();
            }
            Err(error) => return self.pause(&error).await,
        };
        if page.floor.history() != self.histories.current() {
            return self.reset();
        }
        let mean = (page.bytes / page.rows.max(1)).max(1);
        self.rows = i64::try_from(EVENT_PAGE_BYTES_MAX / mean).unwrap_or(i64::MAX).clamp(16, 2_000);
        self.floor = page.floor;
        let steps = self.splice.step(page.input);
        self.apply(steps)
    }

    /// Nothing that this reader has received, or has in flight, is certain any more.
    fn reset(&mut self) -> Vec<StreamItem> {
        self.todo = Phase::Closed;
        vec![StreamItem::Reset]
    }

    async fn pause(&mut self, error: &store::Error) -> Vec<StreamItem> {
        tracing::debug!(error = error as &dyn std::error::Error, "reader waiting for the database");
        tokio::time::sleep(PAUSE).await;
        Vec::new()
    }

    fn learn_tree(&mut self, tree: &[(RunId, bool)]) {
        self.members.extend(tree.iter().map(|(run, _)| *run));
        self.live = tree.iter().filter(|(_, ended)| !ended).map(|(run, _)| *run).collect();
    }

    /// Empties the queue, then goes live at a moment when no event can be missed.
    async fn go_live(&mut self) -> Vec<StreamItem> {
        self.held.page(&self.parts.places.0, &self.owner).await;
        if self.options.tokens && !self.has_asked && self.ended.is_none() {
            let run = if let Scope::Run(context) = &self.scope { Some(context.run_id) } else { None };
            self.parts.source.ask(&self.owner, run).await;
            self.has_asked = true;
        }
        let mut progress = self.parts.gate.progress();
        let signals = self.drain();
        if !signals.is_empty() || self.todo != Phase::GoLive {
            return signals;
        }
        let wanted = |context: &RunContext| self.options.tokens && self.wants(context) && self.shows(context);
        let Some(texts) = self.parts.gate.go_live(&self.subscription, &self.floor, &self.owner, wanted) else {
            // Committed, not yet published: a matter of moments, unless another process's wake-up was lost.
            tokio::select! {
                _ = progress.changed() => {}
                heard = self.subscription.next() => return self.hear(heard),
            }
            return Vec::new();
        };
        let steps = self.splice.step(Input::WentLive);
        let mut signals = self.apply(steps);
        let texts = texts.into_iter().filter(|text| self.options.filter.admits(&text.event_type));
        signals.extend(texts.map(StreamItem::Snapshot));
        signals.extend(self.end());
        signals
    }

    async fn listen(&mut self) -> Vec<StreamItem> {
        let heard = self.subscription.next().await;
        let mut signals = self.hear(heard);
        signals.extend(self.drain());
        signals
    }

    /// Takes what is already waiting on the bus, up to the size of one write to the socket.
    fn drain(&mut self) -> Vec<StreamItem> {
        let (mut signals, todo) = (Vec::new(), self.todo);
        for _ in 0..DRAINED_MAX {
            if self.todo != todo || !self.held.has_room(&self.parts.places.1, &self.owner) {
                break;
            }
            let Some(heard) = self.subscription.try_next() else { break };
            signals.extend(self.hear(heard));
        }
        signals
    }

    fn hear(&mut self, heard: BusMessage) -> Vec<StreamItem> {
        let input = match heard {
            BusMessage::Lagged => Input::Lagged,
            BusMessage::Reset => return self.reset(),
            BusMessage::Stalled(stall) => return self.hear_stall(stall),
            BusMessage::Frame(frame) => {
                self.grow(&frame.context);
                if !self.wants(&frame.context) {
                    return Vec::new();
                }
                let places = &self.parts.places.1;
                match frame.place {
                    // Over the bound, the reader gets it from the log, once it may hold a page.
                    _ if self.is_sent(&frame) && !self.held.frame(frame.block().len(), places, &self.owner) => {
                        Input::Lagged
                    }
                    Some(place) => Input::Durable(place, frame),
                    None => Input::Ephemeral(frame),
                }
            }
        };
        if matches!(input, Input::Lagged) {
            metrics::counter!("runreel_stream_lags_total").increment(1);
        }
        let steps = self.splice.step(input);
        let mut signals = self.apply(steps);
        if self.todo == Phase::Live {
            signals.extend(self.end());
        }
        signals
    }

    fn apply(&mut self, steps: Vec<Step<Arc<Frame>>>) -> Vec<StreamItem> {
        let mut signals = Vec::with_capacity(steps.len());
        for step in steps {
            match step {
                Step::Query => self.todo = Phase::Query,
                Step::GoLive => self.todo = Phase::GoLive,
                Step::Gap { requested_after, first_seq } => {
                    let requested_after = requested_after.to_string();
                    signals.push(StreamItem::Gap { requested_after, first_seq: Some(first_seq) });
                }
                Step::CaughtUp { first_time } => {
                    self.todo = Phase::Live;
                    if first_time {
                        let (last_seq, cursor) = self.place();
                        signals.push(StreamItem::CaughtUp { last_seq, cursor });
                    }
                }
                Step::Deliver(frame) => {
                    self.grow(&frame.context);
                    self.note_end(&frame);
                    if self.is_sent(&frame) {
                        signals.push(StreamItem::Frame(frame));
                    }
                }
            }
        }
        signals
    }

    fn place(&self) -> (Option<Seq>, Option<FeedCursor>) {
        match self.position() {
            ReadPosition::Run(seq) => (Some(*seq), None),
            ReadPosition::Feed(cursor) => (None, Some(cursor.clone())),
        }
    }

    fn note_end(&mut self, frame: &Frame) {
        let (Some(status), Some(place)) = (frame.terminal, frame.place) else { return };
        let run = frame.context.run_id;
        self.live.remove(&run);
        let ends_stream = match &self.scope {
            Scope::Run(own) => own.run_id == run,
            Scope::Feed(feed::Scope::Tree(root)) => *root == run,
            Scope::Feed(_) => false,
        };
        if ends_stream {
            self.ended = Some((status, place.seq));
        }
    }

    /// The end of the stream, once the run has ended and, in a tree, every other run too.
    fn end(&mut self) -> Option<StreamItem> {
        let (status, last_seq) = self.ended?;
        if !self.live.is_empty() {
            return None;
        }
        self.todo = Phase::Closed;
        Some(StreamItem::End { status, last_seq })
    }

    /// Records how the run, or the root of the tree, has already ended: the reader may be past that event.
    pub fn root_ended(&mut self, status: Status, last_seq: Seq) {
        self.ended = Some((status, last_seq));
    }
}
