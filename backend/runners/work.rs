//! Storing one message of a run, under the run's lease.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};

use super::assignment::{HeldRun, Task};
use crate::{
    dispatch::{Assignment, Dispatch},
    domain::{
        event::{EventKind, NewEvent},
        id::{RunId, Seq, SpanId},
        job::{runner_event_id, said_event_id, started_event_id},
        json::Json,
        limits::ANSWER_MS_MAX,
        run::{Refusal, Status},
        runner::{RunnerCode, RunnerError},
    },
    store,
    timeline::emit::EmitError,
};

/// Pause before an unavailable database is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// How many events at the end of a log are searched for an answer.
const ANSWERS_LOOKED_AT: i64 = 64;

/// A snapshot of a run for one task, taken when the task starts.
pub(super) struct Job {
    dispatch: Dispatch,
    job: Assignment,
    status: Status,
    last_seq: Seq,
    lease_until: DateTime<Utc>,
    /// The message number in the ack of `run.done`.
    answered: u64,
    /// As in [`HeldRun`].
    rests: Option<bool>,
}

/// How a task ended.
pub(super) struct TaskEnd {
    pub run_id: RunId,
    pub attempt: i32,
    pub n: u64,
    pub bytes: usize,
    pub status: Status,
    pub last_seq: Seq,
    pub lease_until: DateTime<Utc>,
    /// Interrupts that were requested.
    pub asked: Vec<SpanId>,
    /// As in [`HeldRun`].
    pub rests: Option<bool>,
    pub end: End,
}

pub(super) enum End {
    /// Committed.
    Stored,
    /// Nothing was stored.
    Refused(RunnerError),
    /// The lease is no longer the runner's; nothing was stored.
    Lost,
    /// The run has ended or is suspended, and is no longer the runner's.
    Left,
}

impl Job {
    pub(super) fn of(dispatch: Dispatch, held: &HeldRun) -> Self {
        Self {
            dispatch,
            job: held.job.clone(),
            status: held.status,
            last_seq: held.last_seq,
            lease_until: held.lease_until,
            answered: held.answered,
            rests: held.rests,
        }
    }

    /// Executes a task; waits while the database is unavailable.
    pub(super) async fn perform(mut self, task: Task) -> TaskEnd {
        let (bytes, mut asked) = (task.bytes(), Vec::new());
        let (n, end) = match task {
            Task::Events { n, events: Err(error), .. } => (n, End::Refused(error)),
            Task::Events { n, events: Ok(events), again, .. } => {
                let asks = |event: &&NewEvent| event.event_type.is(EventKind::InterruptRequested);
                let spans: Vec<SpanId> = events.iter().filter(asks).filter_map(|event| event.span_id.clone()).collect();
                let (was, speaks) = (self.status, !events.is_empty());
                let life = events.iter().filter_map(|event| Status::after(&event.event_type)).next_back();
                let events = self.keyed(n, events, again);
                let end = self.store(events).await;
                if matches!(end, End::Stored) {
                    asked = spans;
                    // A runner that emits after an answer acts on it.
                    let acts = (was == Status::Running && speaks).then_some(false);
                    self.rests = life.map(rests).or(acts).or(self.rests);
                }
                (n, end)
            }
            Task::Done => (self.answered, self.done().await),
        };
        TaskEnd {
            run_id: self.job.context.run_id,
            attempt: self.job.attempt,
            n,
            bytes,
            status: self.status,
            last_seq: self.last_seq,
            lease_until: self.lease_until,
            asked,
            rests: self.rests,
            end,
        }
    }

    /// Gives every durable event a key that stays the same when its message is sent again. Deltas are not counted, so a
    /// runner may omit them the second time.
    fn keyed(&self, n: u64, events: Vec<NewEvent>, again: bool) -> Vec<NewEvent> {
        let mut i = 0;
        let keyed = events.into_iter().filter_map(|event| {
            if event.event_type.is_ephemeral() {
                return (!again).then_some(event);
            }
            let key = if is_start(&event) { started_event_id() } else { runner_event_id(self.job.attempt, n, i) };
            i += 1;
            Some(if event.event_id.is_none() { event.event_id(key) } else { event })
        });
        keyed.collect()
    }

    /// Adds the start that a runner omits, and drops one that was emitted already.
    fn begun(&self, events: &[NewEvent]) -> Vec<NewEvent> {
        let mut starts = usize::from(self.status == Status::Queued);
        let mut whole = Vec::with_capacity(events.len() + 1);
        let first = events.first().and_then(|event| event.event_type.kind());
        if self.status == Status::Queued && first != Some(EventKind::RunStarted) {
            whole.push(NewEvent::new(EventKind::RunStarted, Json::empty()).event_id(started_event_id()));
            starts = 0;
        }
        if self.status == Status::Waiting && self.job.status == Status::Waiting && first != Some(EventKind::RunResumed)
        {
            let reason = Json::of(&serde_json::json!({ "reason": "children_ended" }));
            let key = said_event_id(self.job.attempt, "resumed");
            whole.push(NewEvent::new(EventKind::RunResumed, reason).event_id(key));
        }
        whole.extend(
            events
                .iter()
                .filter(|event| {
                    let start = is_start(event);
                    let kept = !start || starts > 0;
                    starts -= usize::from(start && kept);
                    kept
                })
                .cloned(),
        );
        whole
    }

    async fn store(&mut self, events: Vec<NewEvent>) -> End {
        let mut events = events;
        loop {
            match self.renewed().await {
                Ok(true) => {}
                Ok(false) => return End::Lost,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "lease not renewed; will retry");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
            let whole = if events.is_empty() { Vec::new() } else { self.begun(&events) };
            if whole.is_empty() {
                return End::Stored;
            }
            let types: Vec<_> = whole.iter().map(|event| event.event_type.clone()).collect();
            let starts = whole.iter().any(is_start);
            match self.dispatch.timeline().emit_run_event(&self.job.context, whole).await {
                Ok(ack) => {
                    let fresh = types.iter().zip(&ack.events).filter(|(_, event)| !event.duplicate);
                    self.status = fresh.filter_map(|(word, _)| Status::after(word)).next_back().unwrap_or(self.status);
                    self.last_seq = ack.events.iter().filter_map(|event| event.seq).max().unwrap_or(self.last_seq);
                    return End::Stored;
                }
                // Another party may have started the run meanwhile.
                Err(EmitError::Refused(Refusal::Transition { .. })) if starts && self.has_moved().await => {}
                Err(EmitError::OutcomeUnknown) => {
                    // Readers may have seen the deltas; durable events are deduplicated by their keys.
                    events.retain(|event| !event.event_type.is_ephemeral());
                    tokio::time::sleep(PAUSE).await;
                }
                Err(EmitError::Busy | EmitError::Unavailable(_)) => tokio::time::sleep(PAUSE).await,
                Err(error) => {
                    if let EmitError::Refused(Refusal::Ended { status }) = error {
                        self.status = status;
                    }
                    return End::Refused(runner_error(&error));
                }
            }
        }
    }

    /// Whether the run's status differs from the one this task knew; updates it.
    async fn has_moved(&mut self) -> bool {
        let context = &self.job.context;
        let record = self.dispatch.timeline().run(&context.owner_id, context.run_id).await;
        let Ok(Some(record)) = record else { return false };
        let moved = record.head.status != self.status;
        self.status = record.head.status;
        moved
    }

    /// Makes sure that the lease lasts longer than a commit may take.
    async fn renewed(&mut self) -> Result<bool, store::Error> {
        let (clock, lease) = (self.dispatch.timeline().clock().clone(), self.dispatch.lease());
        let wanted = lease.div_f64(2.0).max(Duration::from_millis(ANSWER_MS_MAX));
        let left = self.lease_until - clock.now();
        if left > TimeDelta::from_std(wanted).unwrap_or(TimeDelta::MAX) {
            return Ok(true);
        }
        let until = clock.now() + TimeDelta::from_std(lease).unwrap_or(TimeDelta::zero());
        let lost = self.dispatch.renew(&[self.job.lease_id]).await?;
        if lost.is_empty() {
            self.lease_until = until;
        }
        Ok(lost.is_empty())
    }

    /// Whether the runner last reported a running run as waiting, and it runs again only through an answer that the
    /// runner does not act on. If that is not known, the end of the log shows it.
    async fn has_rested(&self) -> bool {
        if let Some(rests) = self.rests {
            return rests;
        }
        let (store, context) = (self.dispatch.timeline().store(), &self.job.context);
        let (mut after, mut has_rested) = (self.last_seq.back(ANSWERS_LOOKED_AT), false);
        loop {
            let page = store.events().page(&context.owner_id, context.run_id, after, ANSWERS_LOOKED_AT).await;
            let Ok(Some(page)) = page else { return false };
            let mut events = page.events.iter().rev().map(|(_, event)| event);
            if let Some(last) = events.find(|event| !event.event_type.is(EventKind::InterruptResolved)) {
                has_rested =
                    last.event_type.is(EventKind::RunResumed) && last.payload.raw_member("interrupt_id").is_some();
            }
            match page.events.last() {
                Some((place, _)) if !page.complete => after = place.seq,
                _ => return has_rested,
            }
        }
    }

    /// The runner is done: a running run is completed, a suspended one is released, even if it was answered since.
    async fn done(&mut self) -> End {
        let context = Arc::clone(&self.job.context);
        loop {
            let record = match self.dispatch.timeline().run(&context.owner_id, context.run_id).await {
                Ok(Some(record)) => record,
                Ok(None) => return End::Left,
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            (self.status, self.last_seq) = (record.head.status, record.head.last_seq);
            let left = match self.status {
                Status::Completed | Status::Failed | Status::Cancelled => self.dispatch.finish(self.job.lease_id).await,
                Status::Waiting | Status::Interrupted => self.dispatch.release(self.job.lease_id).await,
                Status::Running if self.has_rested().await => self.dispatch.release(self.job.lease_id).await,
                Status::Queued | Status::Running => {
                    let key = said_event_id(self.job.attempt, "done");
                    let completed = NewEvent::new(EventKind::RunCompleted, Json::empty()).event_id(key);
                    match self.store(vec![completed]).await {
                        End::Stored => continue,
                        other => return other,
                    }
                }
            };
            match left {
                Ok(_) => return End::Left,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

fn rests(status: Status) -> bool {
    matches!(status, Status::Waiting | Status::Interrupted)
}

fn is_start(event: &NewEvent) -> bool {
    event.event_type.is(EventKind::RunStarted)
}

fn runner_error(error: &EmitError) -> RunnerError {
    let code = match error {
        EmitError::NotFound => RunnerCode::NotAssigned,
        EmitError::Refused(Refusal::Ended { .. }) => RunnerCode::RunEnded,
        EmitError::Refused(Refusal::Transition { .. }) => RunnerCode::InvalidTransition,
        EmitError::InterruptExists(_) => RunnerCode::InvalidEvent,
        EmitError::OpenText(_) => RunnerCode::TooLarge,
        EmitError::Busy
        | EmitError::Unavailable(_)
        | EmitError::OutcomeUnknown
        | EmitError::StorageFull
        | EmitError::StorageUnavailable => RunnerCode::Unavailable,
        EmitError::RunExists
        | EmitError::ExternalIdTaken(_)
        | EmitError::TooManyAliases
        | EmitError::TooDeep
        | EmitError::Misplaced(_)
        | EmitError::Broken
        | EmitError::Elsewhere
        | EmitError::KeyTaken => RunnerCode::Internal,
    };
    code.because(error.to_string())
}
