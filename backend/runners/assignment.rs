//! A run that a runner works on, as its connection knows it.

use std::collections::{HashSet, VecDeque};

use chrono::{DateTime, Utc};

use crate::{
    dispatch::Assignment,
    domain::{
        event::NewEvent,
        id::{Seq, SpanId},
        json::Json,
        run::Status,
        runner::{About, Assign, RunnerError},
    },
    quota::Share,
};

/// One task of a run, executed after the ones before it. It holds the quota share of its message.
pub(super) enum Task {
    Events { n: u64, events: Result<Vec<NewEvent>, RunnerError>, bytes: usize, _room: Option<Share>, again: bool },
    Done,
}

impl Task {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Events { bytes, .. } => *bytes,
            Self::Done => 0,
        }
    }
}

/// A run and the runner's lease on it.
pub(super) struct HeldRun {
    pub job: Assignment,
    pub status: Status,
    pub last_seq: Seq,
    pub lease_until: DateTime<Utc>,
    /// The last message number accepted; `None` if any may come next.
    pub accepted: Option<u64>,
    /// The last message number that was answered.
    pub answered: u64,
    pub queue: VecDeque<Task>,
    /// A task of this run is in progress.
    pub is_busy: bool,
    /// That task is its `run.done`, which may release it.
    pub is_leaving: bool,
    /// Interrupts that were asked and whose answers were not yet sent to the runner.
    pub asked: HashSet<SpanId>,
    /// Interrupts whose answers were sent to the runner.
    pub told: HashSet<SpanId>,
    /// Whether the runner last reported that the run waits; `None` if it reported to another connection, and only the
    /// log knows.
    pub rests: Option<bool>,
}

impl HeldRun {
    /// A newly assigned run.
    pub(super) fn new(job: Assignment, acked: Option<u64>) -> Self {
        Self { rests: Some(false), ..Self::adopted(job, acked) }
    }

    /// A run whose runner has reconnected.
    pub(super) fn adopted(job: Assignment, acked: Option<u64>) -> Self {
        Self {
            rests: None,
            status: job.status,
            last_seq: job.last_seq,
            lease_until: job.lease_until,
            accepted: acked,
            answered: acked.unwrap_or(0),
            queue: VecDeque::new(),
            is_busy: false,
            is_leaving: false,
            asked: HashSet::new(),
            told: HashSet::new(),
            job,
        }
    }

    /// Bytes received and not in progress yet.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.queue.iter().map(Task::bytes).sum()
    }

    /// Accepts message `n`, or returns the number expected; `true` if it was accepted before.
    pub(super) fn takes(&mut self, n: u64) -> Result<bool, u64> {
        let next = self.accepted.map_or(n, |accepted| accepted.saturating_add(1));
        if n > next || n == 0 {
            return Err(next);
        }
        self.accepted = Some(self.accepted.map_or(n, |accepted| accepted.max(n)));
        Ok(n < next)
    }

    /// The assignment message, with this input and the number of answers that follow it.
    pub(super) fn assign(&self, input: Option<Json>, answers: usize) -> Assign {
        let (job, context) = (&self.job, &self.job.context);
        Assign {
            run_id: context.run_id,
            agent: context.agent.clone(),
            thread_id: context.thread_id.clone(),
            input,
            context: About {
                root_run_id: context.root_run_id,
                parent_run_id: context.parent_run_id,
                owner_id: context.owner_id.as_str().to_owned(),
                session_id: context.session_id.clone(),
                origin: context.origin.clone(),
                trace_id: context.trace_id.clone(),
                role: context.role,
                title: job.fields.title.clone(),
                metadata: job.fields.metadata.clone(),
                tags: job.fields.tags.clone(),
                attempt: job.attempt,
                status: self.status,
                last_seq: self.last_seq.get(),
                answers,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{context::Role, run::RunFields};

    fn held(acked: Option<u64>) -> HeldRun {
        let context = crate::emitters::testing::context(1, Role::Agent, "a");
        let job = Assignment {
            context: std::sync::Arc::new(context),
            fields: RunFields::default(),
            status: Status::Queued,
            last_seq: Seq::ZERO,
            lease_id: uuid::Uuid::nil(),
            lease_until: DateTime::UNIX_EPOCH,
            asked_at: tokio::time::Instant::now(),
            attempt: 1,
        };
        HeldRun::new(job, acked)
    }

    #[test]
    fn message_numbers_of_a_run_count_without_a_gap() {
        let mut run = held(Some(0));
        assert_eq!(run.takes(0), Err(1));
        assert_eq!(run.takes(2), Err(1));
        assert_eq!(run.takes(1), Ok(false));
        assert_eq!(run.takes(2), Ok(false));
        assert_eq!(run.takes(1), Ok(true), "one that comes again is known");
        assert_eq!(run.takes(3), Ok(false));
        assert_eq!(run.takes(5), Err(4));
    }

    #[test]
    fn a_runner_that_said_nothing_of_its_numbers_goes_on_with_any() {
        let mut run = held(None);
        assert_eq!(run.takes(7), Ok(false));
        assert_eq!(run.takes(9), Err(8));
    }
}
