//! Outcomes of messages.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::domain::{run::Status, session::Reason};

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Accepted,
    Filtered,
    /// It was taken and could not be routed yet; it will be, without being sent again.
    Queued,
}

/// What became of a message, and where to follow it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct MessageOutcome {
    pub outcome: Outcome,
    /// Why it started no run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The agent's run; for a duplicate, the run that the first delivery started, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<uuid::Uuid>,
    /// The run whose timeline shows how the message was routed.
    pub router_run_id: uuid::Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Where to follow the agent's run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_url: Option<String>,
    /// With `wait`: how the agent's run stands now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// With `wait`: the answer; null when there is none (yet).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub response: Option<Value>,
}
