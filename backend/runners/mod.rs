//! External runners: processes that execute jobs over a WebSocket.
//!
//! The server's end is [`Runners`] and one `connection` per socket; the runner's end is [`client`], which `runreel
//! runner` uses and any Rust program may use.
//!
//! Invariants kept here: a runner claims only jobs of its own owner; an event is stored only for a run whose lease the
//! connection holds, and only once, however often its message is sent; what is acknowledged is committed; a slow or
//! absent runner delays only its own runs, and those for no longer than a lease.
//!
//! Start reading at `connection` (one runner), then `work` (storing one message of a run).

pub mod agents;
mod answers;
mod assignment;
pub mod client;
mod connection;
pub mod exec;
pub mod intake;
mod work;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::extract::ws::WebSocket;
use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use self::intake::Intake;
use crate::{
    auth::Watched,
    dispatch::Dispatch,
    domain::{
        context::RunContext,
        event::NewEvent,
        id::Name,
        limits::{RUNNER_LOOKS_MAX, RUNNERS_BYTES_MAX, RUNNERS_MAX, RUNNERS_OWN_BYTES_MAX},
        principal::OwnerId,
        runner::RunnerError,
    },
    quota::{Full, Quota, Share},
};

/// What a runner may send, checked as for every other producer.
pub trait RunnerInput: Send + Sync {
    /// Refuses a message that contains the connection's own credential.
    fn admits(&self, text: &str) -> Result<(), RunnerError>;

    /// Parses events of a run, all or none. Rejects events that contain a credential.
    fn events(&self, context: &RunContext, events: &RawValue) -> Result<Vec<NewEvent>, RunnerError>;
}

/// The identity behind a connection.
pub struct Peer {
    pub owner: OwnerId,
    pub expires_at: Option<DateTime<Utc>>,
    /// Set when the credential can be revoked.
    pub watched: Option<Watched>,
    pub input: Box<dyn RunnerInput>,
    /// Counts the bytes of its socket.
    pub intake: Intake,
}

/// The connected runners of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runners {
    dispatch: Dispatch,
    runner_sessions: RunnerSessions,
    places: Quota,
    /// Polls of the database: a wake-up makes every connection poll.
    polls: Quota,
    /// Renewals of leases, which do not wait for polls.
    renewals: Quota,
    /// Bytes of messages that are arriving or wait for their commit.
    bytes: Quota,
    tasks: TaskTracker,
    draining: CancellationToken,
}

impl Runners {
    /// Connections run on `tasks` and end when `draining` is cancelled; a principal has at most `own_max` of them.
    pub fn new(dispatch: Dispatch, own_max: usize, tasks: TaskTracker, draining: CancellationToken) -> Self {
        let places = Quota::new(RUNNERS_MAX, own_max);
        let bytes = Quota::new(RUNNERS_BYTES_MAX, RUNNERS_OWN_BYTES_MAX);
        let polls = Quota::new(RUNNER_LOOKS_MAX, 1);
        let (runner_sessions, renewals) = (RunnerSessions::default(), Quota::new(1, 1));
        Self { dispatch, runner_sessions, places, polls, renewals, bytes, tasks, draining }
    }

    pub fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// Reserves a place for one more connection.
    pub fn place(&self, owner: &OwnerId) -> Result<Share, Full> {
        self.places.try_take(owner, 1)
    }

    /// A principal's turn to query the database. Held for a query, never while something is sent: a runner that reads
    /// slowly must not keep the others waiting.
    async fn turn(&self, owner: &OwnerId) -> Option<Share> {
        self.polls.take(owner, 1).await.ok()
    }

    /// The runners of an owner that are connected to this process, by name.
    pub fn connected(&self, owner: &OwnerId) -> Vec<ConnectedRunner> {
        let sessions = self.runner_sessions.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut runners: Vec<_> =
            sessions.values().map(|(_, runner)| runner).filter(|runner| runner.owner == *owner).cloned().collect();
        drop(sessions);
        runners.sort_by(|a, b| (&a.name, a.connected_at).cmp(&(&b.name, b.connected_at)));
        runners
    }

    /// Serves a runner until either side ends the connection.
    pub async fn serve(self, socket: WebSocket, peer: Peer, place: Share) {
        peer.intake.begin(self.bytes.clone(), peer.owner.clone());
        let gauge = metrics::gauge!("runreel_runners_connected");
        gauge.increment(1.0);
        let tasks = self.tasks.clone();
        tasks.track_future(connection::serve(self, socket, peer)).await;
        gauge.decrement(1.0);
        drop(place);
    }
}

/// A runner with a connection to this process.
#[derive(Clone, Debug)]
pub struct ConnectedRunner {
    pub owner: OwnerId,
    pub name: Name,
    pub agents: Vec<Name>,
    /// Most runs at a time.
    pub capacity: usize,
    pub connected_at: DateTime<Utc>,
}

/// The connection of each session in this process: always the newest.
#[derive(Clone, Debug, Default)]
struct RunnerSessions(Arc<Mutex<HashMap<Uuid, (CancellationToken, ConnectedRunner)>>>);

impl RunnerSessions {
    /// Takes over a session; the connection that had it is cancelled.
    fn take(&self, session: Uuid, runner: ConnectedRunner) -> Speaking {
        let replaced = CancellationToken::new();
        let mut runner_sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((older, _)) = runner_sessions.insert(session, (replaced.clone(), runner)) {
            older.cancel();
        }
        Speaking { runner_sessions: self.clone(), session, replaced }
    }
}

/// Held by the connection that speaks for a session. Dropping it forgets the session, unless a newer one took it over.
struct Speaking {
    runner_sessions: RunnerSessions,
    session: Uuid,
    /// Cancelled when a newer connection takes over.
    replaced: CancellationToken,
}

impl Drop for Speaking {
    fn drop(&mut self) {
        let mut runner_sessions = self.runner_sessions.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.replaced.is_cancelled() {
            runner_sessions.remove(&self.session);
        }
    }
}
