//! What a reader asks for, and what it receives.

use std::sync::Arc;

use super::open::OpenText;
use crate::{
    bus::{Frame, Stall},
    domain::{context::Role, cursor::FeedCursor, event::TypeFilter, id::Seq, run::Status},
};

/// What a reader receives, in order.
#[derive(Clone, Debug)]
pub enum StreamItem {
    /// An event, durable or ephemeral.
    Frame(Arc<Frame>),
    /// The text so far of a message that is being written.
    Snapshot(OpenText),
    /// Everything stored has been delivered: up to a run's last seq, or to a feed's cursor.
    CaughtUp { last_seq: Option<Seq>, cursor: Option<FeedCursor> },
    /// A run has stalled, or no longer is stalled.
    Stalled(Arc<Stall>),
    /// Retention deleted what was asked for; the stream continues from here.
    Gap { requested_after: String, first_seq: Option<Seq> },
    /// The run (or the whole tree) has ended; nothing follows.
    End { status: Status, last_seq: Seq },
    /// The log was set back; the reader has to reconnect, and its cursor is checked again.
    Reset,
    /// The server is shutting down; the reader has to reconnect.
    Draining,
}

/// What a reader wants to see.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    pub filter: TypeFilter,
    /// Whether deltas and texts so far are sent.
    pub tokens: bool,
    /// In a feed, the roles of the runs whose events are sent; if empty, all but routers. Ignored for one run or tree.
    pub roles: Vec<Role>,
}

impl StreamOptions {
    /// Whether a feed sends events of runs with this role.
    pub fn admits(&self, role: Role) -> bool {
        if self.roles.is_empty() { role != Role::Router } else { self.roles.contains(&role) }
    }
}
