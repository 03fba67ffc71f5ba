//! The one way in.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::{
    sync::{mpsc::error::TrySendError, oneshot},
    time::Instant,
};

use super::Timeline;
use crate::{
    domain::{
        artifact::Pointer,
        context::RunContext,
        event::NewEvent,
        id::{EventId, RunId, Seq},
        limits::RUN_DEPTH_MAX,
        open::Overflow,
        run::{Refusal, Spec, Status},
    },
    quota::Share,
    store::{self, Outage, append::NewRunRow, trees::TreePlace},
};

/// What an emit was answered with, one entry per event in the order they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    pub events: Vec<AckEvent>,
    /// Set when the emit was to open a run that was already there.
    pub already_open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckEvent {
    /// `None` for an ephemeral event.
    pub seq: Option<Seq>,
    pub event_id: Option<EventId>,
    /// The run already held an event with this `event_id`; `seq` is that one's.
    pub duplicate: bool,
}

/// Why an emit was not done. Only [`EmitError::OutcomeUnknown`] leaves open whether it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    #[error("there is no such run")]
    NotFound,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("a run with this id exists and was created with other content")]
    RunExists,
    #[error("the tree of runs is too deep")]
    TooDeep,
    /// The run does not fit to those above and below it.
    #[error("{0}")]
    Misplaced(&'static str),
    #[error(transparent)]
    OpenText(#[from] Overflow),
    /// More emits wait than the server keeps; nothing of this one was done.
    #[error("too many emits are waiting")]
    Busy,
    /// Nothing was done.
    #[error("{0}; nothing was stored")]
    Unavailable(Outage),
    /// The database fell silent in the middle of the commit.
    #[error("the database stopped responding during the commit; the events may or may not be stored")]
    OutcomeUnknown,
    #[error("the events could not be stored")]
    Broken,
    /// A payload of this request belongs into the artifact store, which has no room. Nothing was stored.
    #[error("the artifact store is full")]
    StorageFull,
    /// As before, but the store cannot be used. Nothing was stored.
    #[error("artifact store unavailable")]
    StorageUnavailable,
    /// Events that come with their numbers do not follow what the log holds. Nothing was stored.
    #[error("the run's log is at another seq")]
    Elsewhere,
    /// An event that comes with its number has an `event_id` that the log holds already. Nothing was stored.
    #[error("the run's log holds an event with one of these event_ids")]
    KeyTaken,
}

impl EmitError {
    /// Whether the same may work later: something was full or out of reach, and nothing was refused.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::Unavailable(_) | Self::OutcomeUnknown | Self::StorageFull | Self::StorageUnavailable
        )
    }
}

impl From<store::Error> for EmitError {
    fn from(error: store::Error) -> Self {
        if let Some(outage) = error.outage() {
            return Self::Unavailable(outage);
        }
        if matches!(error, store::Error::Busy) {
            return Self::Busy;
        }
        tracing::error!(error = &error as &dyn std::error::Error, "emit failed in the database");
        Self::Broken
    }
}

/// Work for a lane: events of one run, all or nothing.
#[derive(Debug)]
pub(crate) struct AppendRequest {
    pub context: Arc<RunContext>,
    /// Present when these events open the run.
    pub birth: Option<Box<NewRunRow>>,
    pub events: Vec<NewEvent>,
    /// The number the first of them has; `None` when the lane is to number them as they come.
    pub first_seq: Option<Seq>,
    pub arrived: Instant,
    /// Taken when the answer is given.
    pub reply: Option<oneshot::Sender<Result<Ack, EmitError>>>,
    /// Of what its principal may have waiting: requests, and KiB.
    pub _place: Option<(Share, Share)>,
}

impl AppendRequest {
    pub(crate) fn answer(&mut self, answer: Result<Ack, EmitError>) {
        if let Some(reply) = self.reply.take() {
            // Whoever asked may have left; the events are stored all the same.
            let _ = reply.send(answer);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        bytes_of(&self.events)
    }
}

fn bytes_of(events: &[NewEvent]) -> usize {
    events.iter().map(|event| event.payload.as_str().len() + 128).sum()
}

/// How a run begins.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// Its producer's own time, who may tell of it later.
    pub began_at: Option<DateTime<Utc>>,
    /// What follows at once. A run that is there already does not get it.
    pub events: Vec<NewEvent>,
}

impl Timeline {
    /// Validates, persists, commits and then publishes events of one run; all of them or none.
    ///
    /// The answer comes after the commit. The work is done by the run's lane, not in this future: dropping it cancels
    /// nothing half-way. It answers within 5 s whatever the database does.
    ///
    /// A payload over its bound becomes an artifact first (see [`super::artifacts`]); the event keeps a pointer.
    pub async fn emit_run_event(&self, context: &Arc<RunContext>, mut events: Vec<NewEvent>) -> Result<Ack, EmitError> {
        let is_large = |event: &NewEvent| Pointer::is_due(&event.event_type, &event.payload);
        let fresh =
            if events.iter().any(is_large) { Box::pin(self.spill(context, &mut events)).await? } else { Vec::new() };
        let ends = |event: &NewEvent| Status::after(&event.event_type).is_some_and(Status::is_terminal);
        if let Some(thread) = context.thread_id.as_ref().filter(|_| events.iter().any(ends)) {
            // A thread rests from the end of its last run on, so it must not expire at that very moment.
            self.store().threads().renew(&context.owner_id, thread, self.clock().now()).await?;
        }
        let answer = self.submit(Arc::clone(context), None, events, None).await;
        if !fresh.is_empty() {
            Box::pin(self.after_spill(context, &fresh, &answer)).await;
        }
        answer
    }

    /// Opens a run by emitting its first events. The same id with the same content again is answered as before.
    pub async fn open_run(&self, spec: Spec, request_hash: [u8; 32]) -> Result<Ack, EmitError> {
        self.open_run_with(spec, request_hash, Opening::default()).await
    }

    /// As [`Timeline::open_run`], with more than the run itself.
    pub async fn open_run_with(&self, spec: Spec, request_hash: [u8; 32], opening: Opening) -> Result<Ack, EmitError> {
        let depth = if spec.context.parent_run_id.is_some() { self.depth_below(&spec.context).await? } else { 0 };
        let mut events = spec.events();
        for event in &mut events {
            event.at = opening.began_at;
        }
        events.extend(opening.events);
        let context = Arc::new(spec.context.clone());
        let birth = Box::new(NewRunRow { spec, depth, request_hash });
        let ack = self.submit(Arc::clone(&context), Some(birth), events, None).await?;
        // After the run, so that a refused one makes no thread. Until then the run itself keeps a thread from expiring.
        if let Some(thread) = &context.thread_id {
            self.store().threads().touch(&context.owner_id, thread, self.clock().now()).await?;
        }
        if !ack.already_open {
            self.shared.contexts.remember((*context).clone());
        }
        Ok(ack)
    }

    /// The depth of a run whose parent must be here.
    async fn depth_below(&self, context: &RunContext) -> Result<i16, EmitError> {
        let place = self.store().runs().place_in_tree(context).await?;
        let status = place.parent.ok_or(EmitError::NotFound)?;
        // A tree that has ended stays ended: readers of it have been told so.
        if status.is_terminal() {
            return Err(Refusal::Ended { status }.into());
        }
        depth_at(place)
    }

    /// Hands work to the run's lane and waits for its answer.
    pub(super) async fn submit(
        &self,
        context: Arc<RunContext>,
        birth: Option<Box<NewRunRow>>,
        events: Vec<NewEvent>,
        first_seq: Option<Seq>,
    ) -> Result<Ack, EmitError> {
        let (reply, answer) = oneshot::channel();
        // The events outlive the request that brought them, if its client leaves.
        let kib = u32::try_from(bytes_of(&events) / 1024 + 1).map_err(|_| EmitError::Busy)?;
        let place = self.shared.waiting.try_take(&context.owner_id, 1).map_err(|_| EmitError::Busy)?;
        let room = self.shared.waiting_kib.try_take(&context.owner_id, kib).map_err(|_| EmitError::Busy)?;
        let lane = lane_of(context.run_id, self.shared.lanes.len());
        let emission = AppendRequest {
            context,
            birth,
            events,
            first_seq,
            arrived: Instant::now(),
            reply: Some(reply),
            _place: Some((place, room)),
        };
        self.shared.lanes[lane].try_send(emission).map_err(|refused| match refused {
            TrySendError::Full(_) => EmitError::Busy,
            TrySendError::Closed(_) => EmitError::Unavailable(Outage::Unreachable),
        })?;
        // A lane that dies without an answer may have committed.
        answer.await.unwrap_or(Err(EmitError::OutcomeUnknown))
    }
}

/// The depth of a run at this place, if it may stand there.
pub(super) fn depth_at(place: TreePlace) -> Result<i16, EmitError> {
    if place.is_cycle {
        return Err(EmitError::Misplaced("the run would be its own ancestor"));
    }
    if place.has_other_root {
        return Err(EmitError::Misplaced("the root of the run differs from that of its parent or of a run below it"));
    }
    if place.above.saturating_add(place.below) > RUN_DEPTH_MAX {
        return Err(EmitError::TooDeep);
    }
    i16::try_from(place.above).map_err(|_| EmitError::TooDeep)
}

/// The lane a run is written by, from the random part of its id.
fn lane_of(run: RunId, lanes: usize) -> usize {
    (run.uuid().as_u128() as usize) % lanes
}
