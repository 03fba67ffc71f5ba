//! Threads.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::stored;
use crate::domain::json::Json;

/// The state that an agent keeps from one run to the next.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Thread {
    pub thread_id: String,
    /// The owner's principal key, 64 hexadecimal digits.
    pub owner_id: String,
    #[serde(deserialize_with = "stored::one")]
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub metadata: Json,
    /// Its own time to live, in seconds; 0 for never expiring, null for the server's default.
    pub ttl_s: Option<i64>,
    /// The newest checkpoint of the root namespace.
    pub latest_checkpoint_id: Option<String>,
    /// RFC 3339, UTC, microseconds.
    pub created_at: String,
    /// The last checkpoint, or start or end of a run.
    pub updated_at: String,
    /// When it expires if nothing touches it; null for never.
    pub expires_at: Option<String>,
    /// Where to follow its runs.
    pub stream_url: String,
}

/// A page of threads, newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ThreadList {
    pub threads: Vec<Thread>,
    /// Send it back as `cursor` for the next page; null on the last.
    pub next_cursor: Option<String>,
}
