//! [`Outcome`]: the result of routing a message.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::domain::{
    id::{Name, RunId, ThreadId},
    session::Reason,
};

/// The result of routing a message, for the router's run, the inbox and the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The agent's run exists; a process that serves the agent will execute it.
    Accepted { run_id: RunId, session_id: Name, thread_id: ThreadId, new_session: bool },
    /// It starts no run.
    Filtered { reason: Reason },
    /// It waits until its user has entered a one-time code.
    AwaitingCode,
    /// It was a valid code; the message with this number in the inbox waited for it.
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
