//! [`Outcome`]: what became of a message.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::domain::{
    id::{Name, RunId, ThreadId},
    session::Reason,
};

/// What became of a message, for the router's run, the inbox and whoever sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The agent's run is there; whoever serves the agent takes it up.
    Accepted { run_id: RunId, session_id: Name, thread_id: ThreadId, new_session: bool },
    /// It starts no run.
    Filtered { reason: Reason },
    /// It waits until its user has given a one-time code.
    AwaitingCode,
    /// It was a good code; the message with this place in the inbox waited for it.
    Released { held_no: Option<i64> },
}

impl Outcome {
    /// Why it started no run.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Accepted { .. } => None,
            Self::Filtered { reason } => Some(*reason),
            Self::AwaitingCode => Some(Reason::CodeWanted),
            Self::Released { .. } => Some(Reason::CodeAccepted),
        }
    }

    /// The output of the router's run.
    pub(super) fn output(&self) -> Value {
        match self {
            Self::Accepted { run_id, session_id, thread_id, new_session } => json!({
                "outcome": "accepted", "run_id": run_id, "session_id": session_id, "thread_id": thread_id,
                "new_session": new_session,
            }),
            Self::Filtered { .. } | Self::AwaitingCode | Self::Released { .. } => {
                json!({ "outcome": "filtered", "reason": self.reason() })
            }
        }
    }
}
