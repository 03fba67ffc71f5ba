//! One runner: its socket, its runs, and the messages exchanged about them.
//!
//! Everything of a connection happens in one task. Messages of different runs are stored concurrently, those of one run
//! one after the other. When too much is in progress, nothing more is read from the socket.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use axum::extract::ws::{Message, WebSocket, close_code};
use futures::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use tokio::{task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{
    Peer, Runners,
    assignment::{HeldRun, Task},
    work::{End, Job, TaskEnd},
};
use crate::{
    domain::{
        id::{Name, RunId},
        job::Claimer,
        limits::{PING_MS, RUNNER_PENDING_BYTES_MAX, RUNNER_RESUMED_MAX, RUNNER_SILENCE_MS_MAX, RUNNER_WAIT_MS_MAX},
        runner::{
            Ack, CLOSE_GIVEN_BACK, CLOSE_REPLACED, Cancel, Events, FromRunner, RunnerCode, RunnerError, ToRunner,
        },
    },
    quota::Share,
    store,
};

mod disconnect;
mod handshake;
mod input;
mod poll;

/// Why a connection ends.
pub(super) enum Over {
    /// The peer is gone.
    Gone,
    /// The runner leaves for good and releases its runs.
    GivenBack,
    Close(u16, String),
}

impl Over {
    fn close(code: u16, reason: &str) -> Self {
        Self::Close(code, reason.to_owned())
    }
}

type Step = Result<(), Over>;

pub(super) struct Connection {
    hub: Runners,
    peer: Peer,
    sink: SplitSink<WebSocket, Message>,
    who: Claimer,
    agents: Vec<Name>,
    capacity: usize,
    held: HashMap<RunId, HeldRun>,
    /// Runs that the runner no longer has, the latest last, with the ack for a late `run.done`.
    left: VecDeque<Ack>,
    /// Separate tasks: one that waits for the database must not wait for this connection, which may be waiting for the
    /// database as well.
    work: JoinSet<TaskEnd>,
    pending_bytes: usize,
    /// The quota share of the last message.
    room: Option<Share>,
    /// Whether a ping was sent since the last message.
    is_asked: bool,
    /// Whether there may be free slots for which no jobs were claimed yet.
    wants_claim: bool,
}

/// Serves a runner until either side ends the connection.
pub(super) async fn serve(hub: Runners, socket: WebSocket, peer: Peer) {
    let (sink, mut stream) = socket.split();
    let session = hub.dispatch.timeline().ids().uuid();
    let who = Claimer { name: Name::trusted("-"), session, owner: Some(peer.owner.clone()), own_max: i64::MAX };
    let mut connection = Connection {
        hub,
        peer,
        sink,
        who,
        agents: Vec::new(),
        capacity: 0,
        held: HashMap::new(),
        left: VecDeque::new(),
        work: JoinSet::new(),
        pending_bytes: 0,
        room: None,
        is_asked: false,
        wants_claim: false,
    };
    let over = match Box::pin(connection.arrive(&mut stream)).await {
        Err(over) => over,
        Ok(speaking) => {
            let over = Box::pin(connection.talk(&mut stream, &speaking.replaced)).await;
            drop(speaking);
            over.err().unwrap_or(Over::Gone)
        }
    };
    Box::pin(connection.end(over, &mut stream)).await;
}

impl Connection {
    /// Everything after the handshake.
    async fn talk(&mut self, stream: &mut SplitStream<WebSocket>, replaced: &CancellationToken) -> Step {
        let mut wakeup = self.hub.dispatch.wakeup();
        let draining = self.hub.draining.clone();
        let clock = self.hub.dispatch.timeline().clock().clone();
        let mut ping = tokio::time::interval(Duration::from_millis(PING_MS));
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.look().await?;
        loop {
            let left = self.peer.expires_at.map(|at| (at - clock.now()).to_std().unwrap_or_default());
            let expired = async {
                match left {
                    // Checked every second, because the timer does not follow a clock that tests move.
                    Some(left) => tokio::time::sleep(left.min(Duration::from_secs(1))).await,
                    None => std::future::pending().await,
                }
            };
            if left == Some(Duration::ZERO) {
                return Err(Over::close(close_code::POLICY, "the credential has expired"));
            }
            let reading = self.pending_bytes < RUNNER_PENDING_BYTES_MAX;
            let watched = &self.peer.watched;
            let revoked = async {
                match watched {
                    Some(watched) => watched.revoked().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = draining.cancelled() => return Err(Over::close(close_code::RESTART, "draining")),
                () = replaced.cancelled() => {
                    return Err(Over::close(CLOSE_REPLACED, "the session continues in a newer connection"));
                }
                () = revoked => return Err(Over::close(close_code::POLICY, "the token was revoked")),
                () = expired => {}
                Some(outcome) = self.work.join_next() => match outcome {
                    Ok(outcome) => self.after(outcome).await?,
                    Err(_) => return Err(Over::close(close_code::ERROR, "internal")),
                },
                message = stream.next(), if reading => {
                    let text = self.read(message).await?;
                    if let Some(text) = text {
                        self.hear(&text).await?;
                    }
                }
                () = wakeup.woken() => self.look().await?,
                _ = ping.tick() => {
                    if reading && self.is_silent() {
                        // A message may have arrived while this loop waited for the database.
                        match tokio::task::unconstrained(stream.next()).now_or_never() {
                            Some(message) => {
                                if let Some(text) = self.read(message).await? {
                                    self.hear(&text).await?;
                                }
                            }
                            None => return Err(Over::Gone),
                        }
                    }
                    self.put(Message::Ping(axum::body::Bytes::new())).await?;
                    self.is_asked = true;
                }
            }
        }
    }

    /// Whether the peer seems to be gone: it was pinged and has sent nothing since, not even a part of a message.
    fn is_silent(&self) -> bool {
        let silence = Duration::from_millis(RUNNER_SILENCE_MS_MAX - PING_MS);
        self.is_asked && self.peer.intake.active_at().is_some_and(|active| active.elapsed() > silence)
    }

    /// The text of a message, if it is one.
    async fn read(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<Option<String>, Over> {
        self.is_asked = false;
        let text = match message {
            None => return Err(Over::Gone),
            Some(Ok(Message::Close(Some(close)))) if close.code == CLOSE_GIVEN_BACK => return Err(Over::GivenBack),
            Some(Ok(Message::Close(_))) => return Err(Over::Gone),
            Some(Ok(Message::Ping(content) | Message::Pong(content))) => {
                self.peer.intake.control(content.len());
                return Ok(None);
            }
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Binary(_))) => {
                let error = RunnerCode::Unsupported.because("a message must be a text frame of JSON");
                return self.fatal(error, close_code::UNSUPPORTED).await;
            }
            Some(Err(error)) => {
                let text = error.to_string();
                return if text.contains("too long") || text.contains("too big") {
                    self.fatal(RunnerCode::TooLarge.because("a message exceeds the size limit"), close_code::SIZE).await
                } else if text.contains("UTF-8") || text.contains("utf-8") {
                    self.fatal(RunnerCode::Malformed.because("a message is not UTF-8"), close_code::INVALID).await
                } else {
                    Err(Over::Gone)
                };
            }
        };
        self.room = self.peer.intake.message(text.len());
        match self.peer.input.admits(text.as_str()) {
            Ok(()) => Ok(Some(text.as_str().to_owned())),
            Err(error) => self.fatal(error, close_code::POLICY).await,
        }
    }

    /// Handles a message.
    async fn hear(&mut self, text: &str) -> Step {
        let message = match FromRunner::parse(text) {
            Ok(message) => message,
            Err(error) => {
                let code = if error.code == RunnerCode::Malformed { close_code::INVALID } else { close_code::PROTOCOL };
                return self.fatal(error, code).await;
            }
        };
        match message {
            FromRunner::Hello(_) => {
                let error = RunnerCode::Unexpected.because("a connection may send hello only once");
                self.fatal(error, close_code::PROTOCOL).await
            }
            FromRunner::Heartbeat => self.renew().await,
            FromRunner::Drain => {
                self.capacity = 0;
                Ok(())
            }
            FromRunner::Event(events) => self.events(&events, text.len()).await,
            FromRunner::Done(done) => match self.held.get_mut(&done.run_id) {
                // A repeat before the answer changes nothing.
                Some(held) if held.is_leaving || held.queue.iter().any(|task| matches!(task, Task::Done)) => Ok(()),
                Some(held) => {
                    held.queue.push_back(Task::Done);
                    self.begin(done.run_id);
                    Ok(())
                }
                None => match self.left.iter().find(|ack| ack.run_id == done.run_id).copied() {
                    Some(ack) => self.say(&ToRunner::Ack(ack)).await,
                    None => self.not_assigned(done.run_id, None).await,
                },
            },
        }
    }

    async fn events(&mut self, message: &Events, bytes: usize) -> Step {
        let (run_id, n) = (message.run_id, message.n);
        let Some(held) = self.held.get_mut(&run_id) else { return self.not_assigned(run_id, Some(n)).await };
        let again = match held.takes(n) {
            Ok(again) => again,
            Err(next) => {
                let error = RunnerCode::OutOfOrder.because(format!("expected message {next} of this run"));
                return self.say(&ToRunner::Error(error.of(run_id, Some(n)))).await;
            }
        };
        // A message that held only deltas is sent again empty.
        let is_empty = message.events.get().chars().filter(|c| !c.is_ascii_whitespace()).eq("[]".chars());
        let input = &self.peer.input;
        let events = if is_empty { Ok(Vec::new()) } else { input.events(&held.job.context, &message.events) };
        held.queue.push_back(Task::Events { n, events, bytes, _room: self.room.take(), again });
        self.pending_bytes += bytes;
        self.begin(run_id);
        Ok(())
    }

    /// Starts the next task of a run, unless one is in progress.
    fn begin(&mut self, run_id: RunId) {
        let Some(held) = self.held.get_mut(&run_id).filter(|held| !held.is_busy) else { return };
        let Some(task) = held.queue.pop_front() else { return };
        held.is_busy = true;
        held.is_leaving = matches!(task, Task::Done);
        let job = Job::of(self.hub.dispatch.clone(), held);
        self.work.spawn(job.perform(task));
    }

    /// Answers a finished task.
    async fn after(&mut self, outcome: TaskEnd) -> Step {
        self.pending_bytes -= outcome.bytes;
        let run_id = outcome.run_id;
        let Some(held) = self.held.get_mut(&run_id).filter(|held| held.job.attempt == outcome.attempt) else {
            return Ok(());
        };
        held.is_busy = false;
        (held.status, held.last_seq, held.lease_until) = (outcome.status, outcome.last_seq, outcome.lease_until);
        held.answered = held.answered.max(outcome.n);
        held.rests = outcome.rests;
        held.asked.extend(outcome.asked);
        let ack = Ack { run_id, n: outcome.n, last_seq: outcome.last_seq.get() };
        match outcome.end {
            End::Stored => self.say(&ToRunner::Ack(ack)).await?,
            End::Left => {
                self.leave(run_id);
                self.say(&ToRunner::Ack(ack)).await?;
            }
            End::Refused(error) => self.say(&ToRunner::Error(error.of(run_id, Some(outcome.n)))).await?,
            End::Lost => return self.lost(run_id).await,
        }
        // An ended run frees its slot, even if its runner still sends messages about it.
        if outcome.status.is_terminal() && self.held.get(&run_id).is_some_and(|held| held.queue.is_empty()) {
            self.finish(run_id).await;
        }
        self.begin(run_id);
        // Without a newly free slot there is nothing to claim: new jobs wake this connection.
        if self.wants_claim { self.claim().await } else { Ok(()) }
    }

    async fn not_assigned(&mut self, run_id: RunId, n: Option<u64>) -> Step {
        let ended = self.left.iter().any(|ack| ack.run_id == run_id) || self.has_ended(run_id).await;
        let error = if ended {
            RunnerCode::RunEnded.because("the run has ended or was released")
        } else {
            RunnerCode::NotAssigned.because("this runner has no lease on this run; nothing was stored")
        };
        self.say(&ToRunner::Error(error.of(run_id, n))).await
    }

    async fn has_ended(&mut self, run_id: RunId) -> bool {
        let record = self.hub.dispatch.timeline().run(&self.peer.owner, run_id).await;
        matches!(record, Ok(Some(record)) if record.head.status.is_terminal())
    }

    /// The runner's lease on a run is gone.
    async fn lost(&mut self, run_id: RunId) -> Step {
        let Some(held) = self.held.remove(&run_id) else { return Ok(()) };
        self.pending_bytes -= held.waiting_bytes();
        self.wants_claim = true;
        self.say(&ToRunner::Error(RunnerError::lease_lost().of(run_id, None))).await
    }

    async fn finish(&mut self, run_id: RunId) {
        if let Some(held) = self.held.get(&run_id) {
            match self.hub.dispatch.finish(held.job.lease_id).await {
                // A live runner removes its run's state itself; this is for one that is gone.
                Ok(true) => self.hub.dispatch.forget(&self.peer.owner, run_id).await,
                Ok(false) => {}
                Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "job left to the sweep"),
            }
        }
        self.leave(run_id);
    }

    fn leave(&mut self, run_id: RunId) {
        if let Some(held) = self.held.remove(&run_id) {
            self.wants_claim = true;
            self.pending_bytes -= held.waiting_bytes();
            self.left.push_back(Ack { run_id, n: held.answered, last_seq: held.last_seq.get() });
        }
        if self.left.len() > RUNNER_RESUMED_MAX {
            self.left.pop_front();
        }
    }

    async fn say(&mut self, message: &ToRunner) -> Step {
        let text = serde_json::to_string(message).unwrap_or_default();
        self.put(Message::Text(text.into())).await
    }

    /// A runner that does not accept a message within this time is gone.
    async fn put(&mut self, message: Message) -> Step {
        let wait = Duration::from_millis(RUNNER_WAIT_MS_MAX);
        match tokio::time::timeout(wait, self.sink.send(message)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Over::Gone),
        }
    }

    async fn fatal<T>(&mut self, error: RunnerError, code: u16) -> Result<T, Over> {
        let reason = error.code.as_str().to_owned();
        self.say(&ToRunner::Error(error)).await?;
        Err(Over::Close(code, reason))
    }

    async fn cancel(&mut self, run_id: RunId, reason: Option<String>) -> Step {
        // The job and the state are left to the sweep: the runner may still be writing the state.
        self.leave(run_id);
        self.say(&ToRunner::Cancel(Cancel { run_id, reason })).await
    }
}

/// Logs a failed query, which is repeated at the next poll.
fn later<T>(result: Result<T, store::Error>) -> Option<T> {
    let error =
        |error: &_| tracing::warn!(error = error as &dyn std::error::Error, "poll for a runner failed; will retry");
    result.inspect_err(error).ok()
}
