//! Events: replies to emits, and pages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::stored;
use crate::domain::{context::Role, id::RunId, json::Json};

/// What was stored.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EmitReply {
    /// The smallest and largest seq among `events`; null when all were ephemeral.
    pub first_seq: Option<i64>,
    pub last_seq: Option<i64>,
    /// One entry per event, in the order they were sent.
    pub events: Vec<EmitReplyEvent>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EmitReplyEvent {
    /// Null for an ephemeral event.
    pub seq: Option<i64>,
    pub event_id: Option<String>,
    /// The run already held an event with this `event_id`; `seq` is that one's.
    pub duplicate: bool,
}

/// The envelope of an event: the same bytes in the table, on this page and in every stream.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RunEvent {
    #[schema(value_type = uuid::Uuid)]
    pub run_id: RunId,
    /// 1, 2, 3 … without a gap; null for an ephemeral event (`.delta`).
    pub seq: Option<i64>,
    #[serde(rename = "type")]
    pub event_type: String,
    pub role: Role,
    pub agent: Option<String>,
    pub owner_id: String,
    #[schema(nullable = false)]
    pub span_id: Option<String>,
    #[schema(nullable = false)]
    pub parent_span_id: Option<String>,
    #[schema(nullable = false)]
    pub event_id: Option<String>,
    /// RFC 3339, UTC, microseconds.
    pub at: String,
    #[serde(deserialize_with = "stored::one")]
    #[schema(value_type = serde_json::Value)]
    pub payload: Json,
}

/// A page of a run's events.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    #[serde(deserialize_with = "stored::list")]
    #[schema(value_type = Vec<RunEvent>)]
    pub events: Vec<Json>,
    /// The seq of the last event of the page.
    pub next_after: i64,
    /// Its id in the run's stream: send it back as `after` for the next page, or to follow the run from here.
    pub last_id: String,
    pub last_seq: i64,
    /// Whether there is a next page; this one may hold fewer events than were asked for.
    pub has_more: bool,
}
