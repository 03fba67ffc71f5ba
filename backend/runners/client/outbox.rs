//! Events that a runner has emitted, kept until the server acknowledges them, and the state of its runs.
//!
//! No I/O: messages go in, messages to send come out. Everything here survives a broken connection.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    domain::{
        event::{NewEvent, timestamp},
        id::RunId,
        json::Json,
        limits::RUNNER_MESSAGE_BYTES_MAX,
        run::Status,
        runner::{Ack, Answered, Done, Events, FromRunner, RunnerCode, RunnerError},
    },
    emitters::host::HostError,
};

/// What the work on an assignment receives.
pub(super) type AssignedRun = (Assigned, CancellationToken, watch::Receiver<Vec<Answered>>);

/// Most bytes of an event apart from its payload.
const EVENT_MEMBERS_BYTES: usize = 1_024;

type Reply = oneshot::Sender<Result<(), HostError>>;

struct Message {
    n: u64,
    events: Vec<NewEvent>,
    reply: Option<Reply>,
}

/// One assignment of a run: a second assignment of the run is another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    pub run_id: RunId,
    attempt: i32,
}

/// What the outbox keeps of a run.
struct Run {
    attempt: i32,
    /// The number of the last message created.
    n: u64,
    acked: u64,
    waiting: VecDeque<Message>,
    /// How many of them were sent on this connection.
    sent: usize,
    /// The work on it has finished.
    is_done: bool,
    is_done_sent: bool,
    cancel: CancellationToken,
    answers: watch::Sender<Vec<Answered>>,
}

/// Everything not yet settled.
#[derive(Default)]
pub(super) struct Outbox {
    runs: BTreeMap<RunId, Run>,
}

impl Outbox {
    /// Registers an assignment; `None` if the run is being worked on already.
    pub(super) fn assign(&mut self, run: RunId, attempt: i32) -> Option<AssignedRun> {
        if let Some(known) = self.runs.get(&run) {
            if known.attempt >= attempt {
                return None;
            }
            self.forget(run, &RunnerCode::LeaseLost.because("the run was assigned again"));
        }
        let (cancel, answers) = (CancellationToken::new(), watch::Sender::new(Vec::new()));
        let given = (Assigned { run_id: run, attempt }, cancel.clone(), answers.subscribe());
        let waiting = VecDeque::new();
        let fresh =
            Run { attempt, n: 0, acked: 0, waiting, sent: 0, is_done: false, is_done_sent: false, cancel, answers };
        self.runs.insert(run, fresh);
        Some(given)
    }

    /// Queues events of a run; the receiver resolves when they are committed or refused.
    pub(super) fn put(&mut self, run: Assigned, events: Vec<NewEvent>) -> oneshot::Receiver<Result<(), HostError>> {
        let (reply, answer) = oneshot::channel();
        let bytes: usize = events.iter().map(|event| event.payload.as_str().len() + EVENT_MEMBERS_BYTES).sum();
        if bytes > RUNNER_MESSAGE_BYTES_MAX {
            // The server would close the connection each time the message is sent.
            let reason = format!("{bytes} bytes exceed the limit of one message");
            _ = reply.send(Err(HostError::refused(reason)));
            return answer;
        }
        match self.working(run).filter(|run| !run.is_done) {
            Some(run) => {
                run.n += 1;
                run.waiting.push_back(Message { n: run.n, events, reply: Some(reply) });
            }
            None => _ = reply.send(Err(HostError::refused("the run is no longer assigned to this runner"))),
        }
        answer
    }

    /// Marks the work on a run as finished.
    pub(super) fn done(&mut self, run: Assigned) {
        if let Some(run) = self.working(run) {
            run.is_done = true;
        }
    }

    /// The run, if this is its latest assignment.
    fn working(&mut self, run: Assigned) -> Option<&mut Run> {
        self.runs.get_mut(&run.run_id).filter(|known| known.attempt == run.attempt)
    }

    /// The messages to send now.
    pub(super) fn next(&mut self) -> Vec<FromRunner> {
        let mut messages = Vec::new();
        for (run_id, run) in &mut self.runs {
            while let Some(message) = run.waiting.get(run.sent) {
                let events = on_the_wire(&message.events);
                messages.push(FromRunner::Event(Events { run_id: *run_id, n: message.n, events }));
                run.sent += 1;
            }
            if run.is_done && run.waiting.is_empty() && !run.is_done_sent {
                run.is_done_sent = true;
                messages.push(FromRunner::Done(Done { run_id: *run_id }));
            }
        }
        messages
    }

    /// After a reconnect: everything unacknowledged is sent again under its old number, without the deltas that readers
    /// may have seen. A message that held nothing else is sent empty.
    pub(super) fn again(&mut self) {
        for run in self.runs.values_mut() {
            for message in run.waiting.iter_mut().take(run.sent) {
                message.events.retain(|event| !event.event_type.is_ephemeral());
            }
            run.sent = 0;
            run.is_done_sent = false;
        }
    }

    pub(super) fn acked(&self) -> BTreeMap<RunId, u64> {
        self.runs.iter().map(|(id, run)| (*id, run.acked)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn ack(&mut self, ack: Ack) {
        let Some(run) = self.runs.get_mut(&ack.run_id) else { return };
        run.acked = run.acked.max(ack.n);
        while run.waiting.front().is_some_and(|message| message.n <= ack.n) {
            run.sent = run.sent.saturating_sub(1);
            if let Some(message) = run.waiting.pop_front() {
                complete(message.reply, Ok(()));
            }
        }
        if run.is_done_sent {
            self.runs.remove(&ack.run_id);
        }
    }

    /// One message is refused, or the run is no longer assigned to this runner.
    pub(super) fn error(&mut self, error: &RunnerError) {
        let Some(run_id) = error.run_id else { return };
        let gone = matches!(error.code, RunnerCode::LeaseLost | RunnerCode::NotAssigned | RunnerCode::RunEnded);
        if gone {
            self.forget(run_id, error);
        } else if let (Some(run), Some(n)) = (self.runs.get_mut(&run_id), error.n) {
            run.acked = run.acked.max(n);
            if let Some(at) = run.waiting.iter().position(|message| message.n == n) {
                run.sent = run.sent.saturating_sub(1);
                if let Some(message) = run.waiting.remove(at) {
                    let reason = format!("{} ({})", error.detail, error.code.as_str());
                    let is_retryable = error.code == RunnerCode::Unavailable;
                    complete(message.reply, Err(HostError { reason, is_retryable }));
                }
            }
        }
    }

    /// Stops the work on a run.
    pub(super) fn cancel(&mut self, run: RunId) {
        self.forget(run, &RunnerCode::RunEnded.because("the run was cancelled"));
    }

    fn forget(&mut self, run_id: RunId, error: &RunnerError) {
        let Some(run) = self.runs.remove(&run_id) else { return };
        // If the runner itself ended the run, everything up to that event was stored.
        let mut ours = error.code == RunnerCode::RunEnded && run.waiting.iter().any(|message| ends(&message.events));
        for message in run.waiting {
            let answer = if ours { Ok(()) } else { Err(HostError::refused(&error.detail)) };
            ours &= !ends(&message.events);
            complete(message.reply, answer);
        }
        run.cancel.cancel();
    }

    pub(super) fn answered(&mut self, answer: Answered) {
        if let Some(run) = self.runs.get(&answer.run_id) {
            run.answers.send_if_modified(|answers| {
                let is_new = answers.iter().all(|known| known.interrupt_id != answer.interrupt_id);
                if is_new {
                    answers.push(answer);
                }
                is_new
            });
        }
    }

    /// Stops everything.
    pub(super) fn cancel_all(&mut self) {
        for run in self.runs.values() {
            run.cancel.cancel();
        }
    }
}

fn complete(reply: Option<Reply>, answer: Result<(), HostError>) {
    if let Some(reply) = reply {
        // The emitter may no longer be waiting for it.
        let _ = reply.send(answer);
    }
}

fn ends(events: &[NewEvent]) -> bool {
    events.iter().any(|event| Status::after(&event.event_type).is_some_and(Status::is_terminal))
}

/// Events in wire format.
fn on_the_wire(events: &[NewEvent]) -> Box<RawValue> {
    #[derive(Serialize)]
    struct Wire<'a> {
        r#type: &'a str,
        payload: &'a Json,
        #[serde(skip_serializing_if = "Option::is_none")]
        span_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_span_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        event_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<String>,
    }
    let wire: Vec<Wire<'_>> = events
        .iter()
        .map(|event| Wire {
            r#type: event.event_type.as_str(),
            payload: &event.payload,
            span_id: event.span_id.as_ref().map(crate::domain::id::SpanId::as_str),
            parent_span_id: event.parent_span_id.as_ref().map(crate::domain::id::SpanId::as_str),
            event_id: event.event_id.as_ref().map(crate::domain::id::EventId::as_str),
            at: event.at.map(timestamp),
        })
        .collect();
    let json = serde_json::to_string(&wire).unwrap_or_else(|_| "[]".to_owned());
    RawValue::from_string(json).unwrap_or_default()
}

#[cfg(test)]
mod tests;
