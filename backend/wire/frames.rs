//! Control frames of streams.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::{id::Seq, run::Status};

/// `stream.end`: the run, or the whole tree, has ended; nothing follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnd {
    pub status: Status,
    pub last_seq: Seq,
}

/// `stream.gap`: retention deleted the requested events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamGap {
    pub requested_after: RequestedAfter,
    /// The first remaining event.
    pub first_seq: Option<Seq>,
}

/// A seq of a run, or the cursor of a feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestedAfter {
    Seq(i64),
    Cursor(String),
}

impl From<&str> for RequestedAfter {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Cursor(text.to_owned()), Self::Seq)
    }
}

impl fmt::Display for RequestedAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seq(seq) => seq.fmt(f),
            Self::Cursor(cursor) => cursor.fmt(f),
        }
    }
}
