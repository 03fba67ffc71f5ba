//! Saved sessions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{event::timestamp, id::ThreadId, transcript::SavedSession};

/// A session as a list shows it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Saved {
    pub name: String,
    pub description: Option<String>,
    /// RFC 3339, UTC, microseconds.
    pub created_at: String,
    /// When it was last saved.
    pub updated_at: String,
    pub message_count: usize,
    /// The beginning of the user's first message.
    pub first_message: Option<String>,
    /// Whether only the log's messages were saved; such a session is restored as a summary.
    pub fallback: bool,
}

impl From<SavedSession> for Saved {
    fn from(session: SavedSession) -> Self {
        Self {
            name: session.name.to_string(),
            description: session.description,
            created_at: timestamp(session.created_at),
            updated_at: timestamp(session.updated_at),
            message_count: session.message_count,
            first_message: session.first_message,
            fallback: session.thread.is_fallback(),
        }
    }
}

/// A file in the folder that is not, or no longer, a session.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct UnreadableFile {
    pub name: String,
    /// Where reading ended, from 1.
    pub line: usize,
    pub column: usize,
    pub reason: String,
}

/// A page of saved sessions, by name.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SavedList {
    pub saved_sessions: Vec<Saved>,
    /// Files that cannot be read; on the first page.
    pub unreadable: Vec<UnreadableFile>,
    /// Send it back as `cursor` for the next page; null on the last.
    pub next_cursor: Option<String>,
}

/// What to save, and under which name.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveThread {
    /// 1–64 of `A-Za-z0-9._-`.
    pub name: String,
    #[schema(value_type = String)]
    pub thread_id: ThreadId,
    /// At most 2 000 characters; if absent, a session that is saved again keeps its description.
    pub description: Option<String>,
}

/// The target of a restore.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    /// A thread without checkpoints, or one that does not exist yet; if absent, a new one.
    #[schema(value_type = Option<String>)]
    pub thread_id: Option<ThreadId>,
}

/// The thread that continues a session.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RestoredThread {
    pub thread_id: String,
    /// The state that the next run continues from.
    pub checkpoint_id: String,
    /// Messages of the session.
    pub message_count: usize,
    /// Whether the thread has only a summary of them.
    pub fallback: bool,
    /// The session of the chat that continues with the thread; null if the thread has no chat's name, or the chat has
    /// another open session.
    pub session_id: Option<String>,
    pub stream_url: String,
}
