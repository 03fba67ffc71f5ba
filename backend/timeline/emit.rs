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
        id::{EventId, ExternalId, RunId, Seq, SpanId},
        limits::RUN_DEPTH_MAX,
        open::Overflow,
        principal::OwnerId,
        run::{Refusal, Spec, Status},
    },
    quota::Share,
    store::{self, Outage, append::NewRunRow, trees::TreePlace},
};

/// The answer to an emit: one entry per event, in the order they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    pub events: Vec<AckEvent>,
    /// Set if the emit was to open a run that already exists.
    pub already_open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckEvent {
    /// `None` for an ephemeral event.
    pub seq: Option<Seq>,
    pub event_id: Option<EventId>,
    /// The run already has an event with this `event_id`; `seq` is that event's.
    pub duplicate: bool,
}

/// Why an emit failed. Only [`EmitError::OutcomeUnknown`] leaves open whether its events were stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    #[error("there is no such run")]
    NotFound,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("a run with this id exists and was created with other content")]
    RunExists,
    /// Another run of the owner has the external id that this one was to have.
    #[error("the run {0} has this external id")]
    ExternalIdTaken(RunId),
    #[error("the run has as many further ids as it may have")]
    TooManyAliases,
    #[error("the tree of runs is too deep")]
    TooDeep,
    /// The run does not fit its ancestors or descendants.
    #[error("{0}")]
    Misplaced(&'static str),
    #[error(transparent)]
    OpenText(#[from] Overflow),
    /// Too many emits are waiting; nothing of this one was stored.
    #[error("too many emits are waiting")]
    Busy,
    /// Nothing was stored.
    #[error("{0}; nothing was stored")]
    Unavailable(Outage),
    /// The database stopped responding during the commit.
    #[error("the database stopped responding during the commit; the events may or may not be stored")]
    OutcomeUnknown,
    #[error("the events could not be stored")]
    Broken,
    /// A payload of this request has to go to the artifact store, which is full. Nothing was stored.
    #[error("the artifact store is full")]
    StorageFull,
    /// Likewise, but the artifact store is unavailable. Nothing was stored.
    #[error("artifact store unavailable")]
    StorageUnavailable,
    /// Events with given seqs do not continue the run's log. Nothing was stored.
    #[error("the run's log is at another seq")]
    Elsewhere,
    /// A question has the id of an earlier question of the run. Nothing was stored.
    #[error("the run has asked a question with the id {0} before")]
    InterruptExists(SpanId),
    /// An event with a given seq has an `event_id` that the log already holds. Nothing was stored.
    #[error("the run's log holds an event with one of these event_ids")]
    KeyTaken,
}

impl EmitError {
    /// Whether a retry may succeed: something was full or unreachable, and nothing was refused.
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

/// A further external id of a run. It applies after the last answer among the events it is stored with; without one,
/// after `after`.
#[derive(Clone, Debug)]
pub(crate) struct NewAlias {
    pub id: ExternalId,
    pub after: Seq,
}

/// Work for a lane: events of one run, stored all or none.
#[derive(Debug)]
pub(crate) struct AppendRequest {
    pub context: Arc<RunContext>,
    /// Present when these events open the run.
    pub birth: Option<Box<NewRunRow>>,
    pub events: Vec<NewEvent>,
    /// The seq of the first event; `None` if the lane assigns the seqs.
    pub first_seq: Option<Seq>,
    /// Refused if the log has one of the events already, rather than stored without it.
    pub is_whole: bool,
    /// A further external id of the run, stored with the events.
    pub alias: Option<NewAlias>,
    pub arrived: Instant,
    /// Taken when the answer is sent.
    pub reply: Option<oneshot::Sender<Result<Ack, EmitError>>>,
    /// The request's shares of its principal's quotas of waiting requests: their number, and KiB.
    pub places: Option<(Share, Share)>,
}

impl AppendRequest {
    /// Events that the lane numbers, of a run that exists.
    pub(crate) fn new(context: Arc<RunContext>, events: Vec<NewEvent>) -> Self {
        let arrived = Instant::now();
        Self {
            context,
            birth: None,
            events,
            first_seq: None,
            is_whole: false,
            alias: None,
            arrived,
            reply: None,
            places: None,
        }
    }

    /// Events with these seqs; with `birth` they open the run.
    pub(crate) fn numbered(self, birth: Option<Box<NewRunRow>>, first_seq: Seq) -> Self {
        Self { birth, first_seq: Some(first_seq), ..self }
    }

    /// Refused if the log has one of the events; stored with the alias.
    pub(crate) fn whole(self, alias: Option<NewAlias>) -> Self {
        Self { is_whole: true, alias, ..self }
    }

    pub(crate) fn answer(&mut self, answer: Result<Ack, EmitError>) {
        if let Some(reply) = self.reply.take() {
            // The caller may be gone; the events are stored regardless.
            let _ = reply.send(answer);
        }
    }

    /// The external id, with its owner, that the run gets with these events.
    pub(crate) fn name(&self) -> Option<(OwnerId, ExternalId)> {
        let given = self.birth.as_ref().and_then(|birth| birth.spec.fields.external_id.clone());
        let id = given.or_else(|| self.alias.as_ref().map(|alias| alias.id.clone()))?;
        Some((self.context.owner_id.clone(), id))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.events.iter().map(|event| event.payload.as_str().len() + 128).sum()
    }
}

/// What a run is opened with, in addition to its [`Spec`].
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// When the run began, by the producer's clock; it may be reported late.
    pub began_at: Option<DateTime<Utc>>,
    /// Emitted together with the run's first events; not added to a run that already exists.
    pub events: Vec<NewEvent>,
}

impl Timeline {
    /// Validates, persists, commits and then publishes events of one run; all of them or none.
    ///
    /// The answer comes after the commit. The run's lane does the work, not this future, so dropping it leaves nothing
    /// half done. It answers within 5 s, even if the database does not.
    ///
    /// A payload over its bound becomes an artifact first (see [`super::artifacts`]); the event keeps a pointer.
    pub async fn emit_run_event(&self, context: &Arc<RunContext>, mut events: Vec<NewEvent>) -> Result<Ack, EmitError> {
        let is_large = |event: &NewEvent| Pointer::is_due(&event.event_type, &event.payload);
        let fresh =
            if events.iter().any(is_large) { Box::pin(self.spill(context, &mut events)).await? } else { Vec::new() };
        let ends = |event: &NewEvent| Status::after(&event.event_type).is_some_and(Status::is_terminal);
        if events.iter().any(ends) {
            // A thread counts as idle from the end of its last run, so it must not expire at that very moment.
            self.renew_thread(context).await?;
        }
        let answer = self.submit(AppendRequest::new(Arc::clone(context), events)).await;
        if !fresh.is_empty() {
            Box::pin(self.after_spill(context, &fresh, &answer)).await;
        }
        answer
    }

    /// Opens a run by emitting its first events. A repeat with the same id and content changes nothing.
    pub async fn open_run(&self, spec: Spec, request_hash: [u8; 32]) -> Result<Ack, EmitError> {
        self.open_run_with(spec, request_hash, Opening::default()).await
    }

    /// As [`Timeline::open_run`], with an [`Opening`].
    ///
    /// An input over the bound of payloads becomes an artifact of the run; the run keeps a pointer.
    pub async fn open_run_with(
        &self,
        mut spec: Spec,
        request_hash: [u8; 32],
        mut opening: Opening,
    ) -> Result<Ack, EmitError> {
        let depth = if spec.context.parent_run_id.is_some() { self.depth_below(&spec.context).await? } else { 0 };
        self.begin_thread(&spec.context).await?;
        let kept = Box::pin(self.spill_input(&mut spec, &mut opening.events)).await?;
        let mut events = spec.events();
        for event in &mut events {
            event.at = opening.began_at;
        }
        events.extend(opening.events);
        let context = Arc::new(spec.context.clone());
        let birth = Box::new(NewRunRow { spec, depth, request_hash, imported_at: None });
        let first = AppendRequest { birth: Some(birth), ..AppendRequest::new(Arc::clone(&context), events) };
        let answer = self.submit(first).await;
        if let Some(input) = kept {
            Box::pin(self.after_input(&context, input, &answer)).await;
        }
        let ack = answer?;
        if !ack.already_open {
            self.shared.contexts.remember((*context).clone());
        }
        Ok(ack)
    }

    /// The depth of a run below its parent, which must exist.
    async fn depth_below(&self, context: &RunContext) -> Result<i16, EmitError> {
        let place = self.store().runs().place_in_tree(context).await?;
        let status = place.parent.ok_or(EmitError::NotFound)?;
        // A tree that has ended stays ended: its readers have been sent its end.
        if status.is_terminal() {
            return Err(Refusal::Ended { status }.into());
        }
        depth_at(place)
    }

    /// Records that the run's thread is in use; `false` if it does not exist.
    pub(super) async fn renew_thread(&self, context: &RunContext) -> Result<bool, store::Error> {
        let Some(thread) = &context.thread_id else { return Ok(true) };
        self.store().threads().renew(&context.owner_id, thread, self.clock().now()).await
    }

    /// The same before a run begins; waits for others that create the thread, since the lane must not.
    pub(super) async fn begin_thread(&self, context: &RunContext) -> Result<(), store::Error> {
        let Some(thread) = &context.thread_id else { return Ok(()) };
        if !self.renew_thread(context).await? {
            self.store().threads().wait_for_others(&context.owner_id, thread, self.clock().now()).await?;
        }
        Ok(())
    }

    /// Hands work to the run's lane and waits for its answer.
    pub(super) async fn submit(&self, mut request: AppendRequest) -> Result<Ack, EmitError> {
        let (reply, answer) = oneshot::channel();
        let owner = &request.context.owner_id;
        // The events outlive their HTTP request if its client disconnects.
        let kib = u32::try_from(request.bytes() / 1024 + 1).map_err(|_| EmitError::Busy)?;
        let place = self.shared.waiting.try_take(owner, 1).map_err(|_| EmitError::Busy)?;
        let room = self.shared.waiting_kib.try_take(owner, kib).map_err(|_| EmitError::Busy)?;
        (request.reply, request.places) = (Some(reply), Some((place, room)));
        let lane = lane_of(request.context.run_id, self.shared.lanes.len());
        self.shared.lanes[lane].try_send(request).map_err(|refused| match refused {
            TrySendError::Full(_) => EmitError::Busy,
            TrySendError::Closed(_) => EmitError::Unavailable(Outage::Unreachable),
        })?;
        // A lane that dies without an answer may have committed.
        answer.await.unwrap_or(Err(EmitError::OutcomeUnknown))
    }
}

/// The depth of a run at this place, if it is allowed there.
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

/// The lane that writes a run, from the random part of the run's id.
pub(super) fn lane_of(run: RunId, lanes: usize) -> usize {
    (run.uuid().as_u128() as usize) % lanes
}
