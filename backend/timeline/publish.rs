//! The gate between the commit and the bus.
//!
//! Each lane is published in the order of its positions, without a gap: a local commit that follows another process's
//! is published only after that one was read from the table ([`super::relay`]). The publisher of a lane holds the
//! lane's turn from before its commit until after its publication, so no other task publishes those rows a second time.
//!
//! The gate also keeps the texts of open messages. A reader goes live under the same lock that publications take, so
//! the deltas that follow continue its text exactly.

mod texts;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedMutexGuard, watch};
use uuid::Uuid;

use super::open::{OpenText, OpenTexts};
use crate::{
    bus::{self, Bus, Frame, Subscription},
    domain::{
        context::{Role, RunContext},
        cursor::FeedCursor,
        event::{EventKind, EventType, Recorded},
        history::{Histories, Tag},
        id::{RunId, SpanId},
        json::Json,
        limits::HEADS_MAX,
        open::Lengths,
        principal::OwnerId,
        run::Status,
        splice::LogPosition,
    },
};

/// One thing to publish.
pub(crate) enum Publication {
    Durable(LogPosition, Recorded),
    Delta(Recorded, SpanId, String),
}

/// The right to append and publish in a lane.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// The right to do so in every lane.
pub(super) struct AllTurns(#[expect(dead_code, reason = "held, and given back by being dropped")] Vec<Turn>);

#[derive(Debug)]
struct GateState {
    /// Kept here so that nothing is published without the gate's lock.
    bus: bus::Publisher,
    published: FeedCursor,
    histories: Arc<Histories>,
    open: OpenTexts,
    /// Per lane, the runs that have ended since its writer last asked.
    ended: Vec<Ended>,
}

/// The cached heads that the writer of a lane has to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    These(Vec<RunId>),
    /// More than are listed, or unknown ones because events were skipped.
    Any,
}

impl Ended {
    const NONE: Self = Self::These(Vec::new());

    fn note(&mut self, run: RunId) {
        match self {
            Self::These(runs) if runs.len() < HEADS_MAX => runs.push(run),
            _ => *self = Self::Any,
        }
    }
}

/// Publishes what was committed. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    bus: Bus,
    state: Arc<Mutex<GateState>>,
    turns: Arc<Vec<Arc<tokio::sync::Mutex<()>>>>,
    progress: Arc<watch::Sender<()>>,
    run_changes: Arc<watch::Sender<()>>,
    /// Notified when open texts have to be saved for other processes.
    unsaved: Arc<Notify>,
    /// The same for the message bus.
    unsent: Arc<Notify>,
}

impl Gate {
    /// A gate that counts everything up to `tail` as published. This process's texts get ids from `first_text` on.
    pub(crate) fn new(bus_frames: usize, tail: &FeedCursor, histories: Histories, first_text: Uuid) -> Self {
        let (bus, to_bus) = Bus::new(bus_frames);
        let ended = tail.lanes().map(|_| Ended::NONE).collect();
        let state = GateState {
            bus: to_bus,
            published: tail.clone(),
            histories: Arc::new(histories),
            open: OpenTexts::new(first_text),
            ended,
        };
        let turns = tail.lanes().map(|_| Arc::default()).collect();
        Self {
            bus,
            state: Arc::new(Mutex::new(state)),
            turns: Arc::new(turns),
            progress: Arc::default(),
            run_changes: Arc::default(),
            unsaved: Arc::default(),
            unsent: Arc::default(),
        }
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.bus
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process knows the lane.
    pub(crate) fn has_lane(&self, lane: u8) -> bool {
        usize::from(lane) < self.turns.len()
    }

    /// Waits for the right to append and publish in a lane.
    pub(crate) async fn turn(&self, lane: u8) -> Turn {
        Arc::clone(&self.turns[usize::from(lane)]).lock_owned().await
    }

    /// Waits for the right to append and publish in every lane.
    pub(super) async fn all_turns(&self) -> AllTurns {
        let mut turns = Vec::with_capacity(self.turns.len());
        // In lane order, as every caller that takes more than one does, so that none deadlock.
        for turn in self.turns.iter() {
            turns.push(Arc::clone(turn).lock_owned().await);
        }
        AllTurns(turns)
    }

    /// How far every lane has been published, and in which history.
    pub(crate) fn tail(&self) -> FeedCursor {
        self.state().published.clone()
    }

    /// The histories of the log that is published.
    pub(crate) fn histories(&self) -> Arc<Histories> {
        Arc::clone(&self.state().histories)
    }

    /// Starts again at `tail`, which may be behind what was published: the database was set back.
    pub(super) fn reset(&self, _turns: &AllTurns, tail: &FeedCursor, histories: Histories) {
        let mut state = self.state();
        state.published = tail.clone();
        state.histories = Arc::new(histories);
        state.open.clear();
        state.bus.reset();
        self.note_unsaved(&state);
        drop(state);
        self.progress.send_replace(());
        self.run_changes.send_replace(());
    }

    /// How far a lane has been published.
    pub(crate) fn published(&self, lane: u8) -> i64 {
        self.state().published.at(lane)
    }

    /// The runs of a lane that have ended since the last call, in any process.
    pub(crate) fn take_ended(&self, lane: u8) -> Ended {
        let mut state = self.state();
        state.ended.get_mut(usize::from(lane)).map_or(Ended::NONE, |ended| std::mem::replace(ended, Ended::NONE))
    }

    /// Changes whenever something was published.
    pub(crate) fn progress(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }

    /// Changes when there may be work to pick up: a run was created, resumed, answered or ended.
    pub(crate) fn run_changes(&self) -> watch::Receiver<()> {
        self.run_changes.subscribe()
    }

    /// Publishes a contiguous piece of a lane that ends at `up_to`.
    pub(crate) fn publish(
        &self,
        _turn: &Turn,
        lane: u8,
        up_to: i64,
        publications: impl Iterator<Item = (Arc<RunContext>, Publication)>,
    ) {
        let mut state = self.state();
        let mut of_life = false;
        for (context, publication) in publications {
            match publication {
                Publication::Durable(place, event) => {
                    of_life |= is_of_life(&context, &event.event_type);
                    let expected = state.published.at(lane) + 1;
                    assert_eq!(place.position, expected, "a lane is published without a hole");
                    state.published.advance(lane, place.position);
                    state.open.close(context.run_id, &event.event_type, event.span_id.as_ref());
                    if Status::after(&event.event_type).is_some_and(Status::is_terminal) {
                        state.ended[usize::from(lane)].note(context.run_id);
                    }
                    if self.bus.is_heard(context.run_id, &context.owner_id) {
                        let history = state.histories.current();
                        state.bus.publish(Frame::new(context, &event, Some(place), history));
                    }
                }
                Publication::Delta(event, span_id, text) => {
                    // A full span was refused when the commit was planned.
                    let Ok(offset) = state.open.add(&context, &event, &span_id, &text) else { continue };
                    self.publish_delta(&state, context, event, (offset, false));
                }
            }
        }
        assert!(state.published.at(lane) <= up_to, "nothing beyond the piece was published");
        state.published.advance(lane, up_to);
        self.note_unsaved(&state);
        drop(state);
        self.progress.send_replace(());
        if of_life {
            self.run_changes.send_replace(());
        }
    }

    /// Publishes a delta with its offset and [`Frame::is_earlier`].
    fn publish_delta(
        &self,
        state: &GateState,
        context: Arc<RunContext>,
        delta: Recorded,
        (offset, is_earlier): (usize, bool),
    ) {
        if self.bus.is_heard(context.run_id, &context.owner_id) {
            let delta = Recorded { payload: with_offset(&delta.payload, offset), ..delta };
            let mut frame = Frame::new(context, &delta, None, Tag::FIRST);
            frame.is_earlier = is_earlier;
            state.bus.publish(frame);
        }
    }

    /// Notifies readers of a run whether it has stalled.
    pub(super) fn tell(&self, stall: bus::Stall) {
        self.state().bus.tell(stall);
    }

    /// Skips a piece of a lane that is not published event by event; every reader pages the database instead.
    pub(crate) fn skip(&self, _turn: &Turn, lane: u8, up_to: i64) {
        let mut state = self.state();
        state.published.advance(lane, up_to);
        // What ended in that piece is unknown, so no text may be shown as still open.
        state.open.clear();
        state.ended[usize::from(lane)] = Ended::Any;
        state.bus.skip();
        self.note_unsaved(&state);
        drop(state);
        self.progress.send_replace(());
        self.run_changes.send_replace(());
    }

    /// Whether there is no subscriber and no open text: then a publication would change nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.bus.topics_count() == 0 && self.state().open.is_empty()
    }

    /// The lengths of a run's open texts, and the bytes of this span's; `None` if the span is not open.
    pub(crate) fn open(&self, run: RunId, span_id: &SpanId) -> (Lengths, Option<usize>) {
        self.state().open.lengths(run, span_id)
    }

    /// Lets a reader go live if nothing is queued for it and everything up to `floor` has been published.
    ///
    /// Returns the texts open at that moment, of those runs of `owner` that `wanted` admits; `None` if it is too early.
    pub(crate) fn go_live(
        &self,
        subscription: &Subscription,
        floor: &FeedCursor,
        owner: &OwnerId,
        wanted: impl Fn(&RunContext) -> bool,
    ) -> Option<Vec<OpenText>> {
        let state = self.state();
        if !subscription.is_empty() || floor.is_ahead_of(&state.published) {
            return None;
        }
        Some(state.open.of(owner, wanted))
    }
}

/// The payload of a delta, with the number of characters before it added; its other bytes stay the same.
fn with_offset(payload: &Json, offset: usize) -> Json {
    let text = payload.as_str();
    debug_assert!(text.starts_with("{\"") && text.ends_with('}'), "the door admits deltas with a text only");
    Json::trusted(format!("{},\"offset\":{offset}}}", &text[..text.len() - 1]))
}

/// Whether there may be work to pick up. A run that starts is already picked up, and a router's run never is.
fn is_of_life(context: &RunContext, event_type: &EventType) -> bool {
    let idle = matches!(event_type.kind(), Some(EventKind::RunStarted | EventKind::InterruptRequested));
    matches!(event_type.family(), "run" | "interrupt") && !idle && context.role != Role::Router
}
