//! What a reader asks for, and what it is told.

use std::sync::Arc;

use super::open::OpenText;
use crate::{
    bus::Frame,
    domain::{context::Role, cursor::FeedCursor, event::TypeFilter, id::Seq, run::Status},
};

/// What a reader is told, in order.
#[derive(Clone, Debug)]
pub enum StreamItem {
    /// An event, durable or ephemeral.
    Frame(Arc<Frame>),
    /// The text so far of a message that is being written.
    Snapshot(OpenText),
    /// Everything that was there has been delivered: a run's last seq, or the place in a feed.
    CaughtUp { last_seq: Option<Seq>, cursor: Option<FeedCursor> },
    /// Retention removed what was asked for; the stream goes on from here.
    Gap { requested_after: String, first_seq: Option<Seq> },
    /// The run (or the whole tree) has ended; nothing follows.
    End { status: Status, last_seq: Seq },
    /// The log was set back; come back with your cursor and learn whether it still holds.
    Reset,
    /// The server is going down; come back.
    Draining,
}

/// What a reader wants to see.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    pub filter: TypeFilter,
    /// Deltas and texts so far.
    pub tokens: bool,
    /// Of a feed: events of runs with these roles; of all but routers when there are none. A stream of one run or tree
    /// shows it whole.
    pub roles: Vec<Role>,
}

impl StreamOptions {
    /// Whether a feed shows events of runs with this role.
    pub fn admits(&self, role: Role) -> bool {
        if self.roles.is_empty() { role != Role::Router } else { self.roles.contains(&role) }
    }
}
