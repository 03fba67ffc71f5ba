//! Whether a server is alive and ready.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, `draining` or `unavailable`.
    pub status: String,
    pub version: String,
    /// Why no event can be stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
