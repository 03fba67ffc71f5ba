//! [`Outcome`]: what became of a message, as its router's run says it at its end.

use serde::{Deserialize, Serialize};

use crate::{
    domain::{
        id::{Name, RunId, ThreadId},
        json::Json,
        session::Reason,
    },
    sessions::steps::{Routed, Started},
};

/// The output of the router's run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The agent's run is there.
    Accepted {
        run_id: RunId,
        session_id: Name,
        thread_id: ThreadId,
        new_session: bool,
    },
    Filtered {
        reason: Reason,
    },
}

impl Outcome {
    /// Reads back what a run has said; `None` when it is not about this message.
    pub(super) fn of(output: &Json, routed: &Routed) -> Option<Self> {
        let read: Self = serde_json::from_str(output.as_str()).ok()?;
        match &read {
            Self::Accepted { run_id, .. } if *run_id != routed.run_id => None,
            Self::Accepted { .. } | Self::Filtered { .. } => Some(read),
        }
    }

    /// The same for whoever sent the message. `held_no` is the message that waited for the code which this one was.
    pub(super) fn started(self, routed: &Routed, held_no: Option<i64>) -> Started {
        let router_run_id = routed.router_run_id;
        match self {
            Self::Accepted { run_id, session_id, thread_id, .. } => {
                Started::Accepted { run_id, router_run_id, session_id, thread_id }
            }
            Self::Filtered { reason: Reason::CodeAccepted } => Started::Released { inbound_no: held_no, router_run_id },
            Self::Filtered { reason } => Started::Filtered { reason, router_run_id },
        }
    }
}
