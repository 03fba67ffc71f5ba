//! [`RunContext`]: the identity of a run, passed explicitly to everything that acts for it.
//!
//! It is plain data on purpose. A context with a pool, a client or a channel would let distant code do I/O that no
//! signature shows; a context in a task-local would be lost at the first `spawn`. Both are impossible here: the fields
//! implement the sealed [`Snapshot`] trait, which only values have, and the lint bans task-locals.

use serde::{Deserialize, Serialize};

use super::{
    id::{Name, RunId, ThreadId},
    principal::OwnerId,
    trace,
};

/// The role of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Supervisor,
    Worker,
    Agent,
    /// Says which agent and which session something is for. Lists, feeds and counts leave it out unless it is asked
    /// for.
    Router,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Supervisor, Self::Worker, Self::Agent, Self::Router];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Supervisor => "supervisor",
            Self::Worker => "worker",
            Self::Agent => "agent",
            Self::Router => "router",
        }
    }

    /// All roles, as a filter of lists.
    pub fn any() -> String {
        Self::ALL.map(Self::as_str).join(",")
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// Where a message that started a run came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Origin {
    #[schema(value_type = String)]
    pub channel: Name,
    pub chat: String,
    /// The author, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// The immutable identity of one run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunContext {
    pub run_id: RunId,
    /// The root of the tree this run belongs to; the run itself if it has no parent.
    pub root_run_id: RunId,
    pub parent_run_id: Option<RunId>,
    pub owner_id: OwnerId,
    pub thread_id: Option<ThreadId>,
    pub session_id: Option<Name>,
    pub role: Role,
    pub agent: Option<Name>,
    pub origin: Option<Origin>,
    /// W3C trace id of the request that created the run, 32 hexadecimal digits.
    pub trace_id: Option<String>,
}

impl RunContext {
    /// The environment variables of a program that works for the run. W3C trace context libraries read `TRACEPARENT`.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let origin = self.origin.as_ref();
        let variables = [
            ("RUNREEL_RUN_ID", Some(self.run_id.to_string())),
            ("RUNREEL_AGENT", self.agent.as_ref().map(Name::to_string)),
            ("RUNREEL_THREAD_ID", self.thread_id.as_ref().map(ThreadId::to_string)),
            ("RUNREEL_SESSION_ID", self.session_id.as_ref().map(Name::to_string)),
            ("RUNREEL_ORIGIN_CHANNEL", origin.map(|origin| origin.channel.to_string())),
            ("RUNREEL_ORIGIN_CHAT", origin.map(|origin| origin.chat.clone())),
            ("RUNREEL_ORIGIN_USER", origin.and_then(|origin| origin.user.clone())),
            ("RUNREEL_TRACE_ID", self.trace_id.clone()),
            ("TRACEPARENT", self.trace_id.as_deref().map(trace::parent_of)),
        ];
        variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Plain data: can be stored, sent, compared and dropped. Sealed, so that nothing stateful can implement it.
pub trait Snapshot: sealed::Sealed + Clone + Send + Sync + 'static {}

macro_rules! snapshots {
    ($($type:ty),+ $(,)?) => { $(impl sealed::Sealed for $type {} impl Snapshot for $type {})+ };
}
snapshots!(RunId, OwnerId, Name, ThreadId, Role, Origin, String);
impl<T: Snapshot> sealed::Sealed for Option<T> {}
impl<T: Snapshot> Snapshot for Option<T> {}

/// Compile-time proof that every field is plain data: each is named, so a new field that is not fails to compile.
const _: fn(RunContext) = |context| {
    fn plain<T: Snapshot + Serialize>(_: &T) {}
    let RunContext {
        run_id,
        root_run_id,
        parent_run_id,
        owner_id,
        thread_id,
        session_id,
        role,
        agent,
        origin,
        trace_id,
    } = context;
    plain(&run_id);
    plain(&root_run_id);
    plain(&parent_run_id);
    plain(&owner_id);
    plain(&thread_id);
    plain(&session_id);
    plain(&role);
    plain(&agent);
    plain(&origin);
    plain(&trace_id);
};
const _: fn() = || {
    fn crosses_tasks<T: Serialize + Clone + Send + Sync + 'static>() {}
    crosses_tasks::<RunContext>();
};
