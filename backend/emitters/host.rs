//! [`RunHost`]: what a run needs from the process that executes it.
//!
//! There are two: the server itself, directly on its timeline and store, and a runner, over HTTP and its WebSocket.
//! Agents, tools and the engine cannot tell which.

use std::{fmt::Display, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;

use crate::{
    domain::{
        checkpoint::Checkpoint,
        context::RunContext,
        event::NewEvent,
        id::{Name, RunId, SpanId},
        interrupt::Decision,
        json::Json,
        run::Status,
    },
    store::{
        self,
        checkpoints::{NewCheckpoint, NewWrites},
    },
};

/// The host did not do what was asked. Says nothing about the run itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HostError {
    /// For the person who runs the agent.
    pub reason: String,
    /// Whether the same call may succeed later: something was unreachable or full, and nothing was refused.
    pub is_retryable: bool,
}

impl HostError {
    pub fn refused(reason: impl Display) -> Self {
        Self { reason: reason.to_string(), is_retryable: false }
    }

    pub fn unavailable(reason: impl Display) -> Self {
        Self { reason: reason.to_string(), is_retryable: true }
    }

    /// The same error, with what was attempted before it.
    #[must_use]
    pub fn because(self, what: &str) -> Self {
        Self { reason: format!("{what}: {}", self.reason), ..self }
    }
}

impl From<store::Error> for HostError {
    fn from(error: store::Error) -> Self {
        Self {
            is_retryable: error.outage().is_some() || matches!(error, store::Error::Busy),
            reason: error.to_string(),
        }
    }
}

/// The result of a call to a host.
pub type Hosted<'a, T> = BoxFuture<'a, Result<T, HostError>>;

/// What one run needs from the process that executes it. Each call takes and releases its own database or server
/// connection; a repeated call changes nothing.
pub trait RunHost: Send + Sync {
    /// The run this host is for.
    fn context(&self) -> &Arc<RunContext>;

    /// Takes events of the run. `Ok` means that the durable ones are committed, in their order; an event whose id the
    /// log already holds is not stored again.
    fn emit(&self, events: Vec<NewEvent>) -> Hosted<'_, ()>;

    /// The run's status; `None` if it no longer exists.
    fn status(&self) -> Hosted<'_, Option<Status>>;

    /// The answer to an interrupt of this run, once there is one.
    fn answer<'a>(&'a self, interrupt: &'a SpanId) -> Hosted<'a, Option<Answered>>;

    /// Creates a run with the role of a worker below this one.
    fn spawn(&self, child: Child) -> Hosted<'_, RunContext>;

    /// How these runs ended, for those that have, in the order asked.
    fn ends<'a>(&'a self, runs: &'a [RunId]) -> Hosted<'a, Vec<ChildEnd>>;

    /// Cancels every run below this one that has not ended.
    fn cancel_below<'a>(&'a self, reason: &'a str) -> Hosted<'a, ()>;

    /// The newest checkpoint in the root namespace of the run's thread
    /// ([`state_thread`](crate::threads::state_thread)).
    fn latest_checkpoint(&self) -> Hosted<'_, Option<Checkpoint>>;

    fn put_checkpoint(&self, new: NewCheckpoint) -> Hosted<'_, ()>;

    /// An existing write is kept.
    fn put_writes(&self, new: NewWrites) -> Hosted<'_, ()>;

    /// Makes sure that the run's own thread, if it has one, lives as long as the run.
    fn hold_state(&self) -> Hosted<'_, ()>;

    /// Removes the run's own thread, if it has one, with its checkpoints.
    fn drop_state(&self) -> Hosted<'_, ()>;

    /// Stores bytes durably as an artifact of the run. The same bytes under the same name are the same artifact.
    fn keep_artifact<'a>(&'a self, name: &'a str, media_type: &'a str, bytes: Bytes) -> Hosted<'a, ArtifactRef>;

    /// Bytes of an artifact of the run's owner; `None` if it does not exist or is damaged.
    fn read_artifact<'a>(&'a self, artifact_id: &'a str, from: u64, bytes_max: usize) -> Hosted<'a, Option<Piece>>;
}

/// What a person answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    pub decision: Decision,
    pub value: Option<Value>,
    /// Every question the log holds under this id.
    pub asked: Vec<Json>,
}

impl Answered {
    /// Whether this answers that question and no other: anyone who may write to a run's thread can make the run ask
    /// something else under an id that a person has answered.
    pub fn is_of(&self, question: &Value) -> bool {
        let without_time = |json: &Json| {
            let mut members: serde_json::Map<String, Value> = serde_json::from_str(json.as_str()).unwrap_or_default();
            // It is set when the question is asked, and the server expires the question by it.
            members.remove("expires_at");
            members
        };
        let wanted = without_time(&Json::of(question));
        self.asked.iter().all(|asked| without_time(asked) == wanted)
    }
}

/// A run to spawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Chosen by the supervisor, so that a repeated spawn finds the same run.
    pub run_id: RunId,
    pub agent: Name,
    pub title: String,
    pub input: Value,
}

/// How a run below this one ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildEnd {
    pub run_id: RunId,
    pub status: Status,
    pub output: Option<Value>,
    pub error: Option<Value>,
    /// From its creation to its end.
    pub took: Duration,
}

/// An artifact that was stored, as events point to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArtifactRef {
    pub artifact_id: String,
    /// Hexadecimal.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    pub media_type: String,
}

/// Bytes of an artifact from an offset, as many as exist and were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub bytes: Bytes,
    /// Size of the whole artifact, bytes.
    pub size: u64,
    pub media_type: String,
}

/// The id of the event that reports an artifact stored by an agent. `sha256` is hexadecimal.
pub fn artifact_event_id(name: &str, sha256: &str) -> String {
    format!("spill:{name}:{}", &sha256[..sha256.len().min(32)])
}
