//! Where a reader's stream begins, for every protocol: after a cursor, with a number of latest events, or at the start.
//!
//! A cursor is admitted only if what it names is part of the log. A cursor beyond the log's end, or of a lost history,
//! is [`ResumeError::Ahead`] and never silently skipped. A reader that has all of an ended run or tree gets no stream
//! ([`Resumed::Ended`]).

use std::sync::Arc;

use super::{
    Timeline,
    follow::{Follower, StreamOptions},
};
use crate::{
    domain::{
        cursor::{FeedCursor, RunCursor},
        history::{Histories, Tag},
        id::{Malformed, RunId, Seq},
        principal::OwnerId,
        run::Status,
    },
    store::{self, feed},
};

/// Where a reader wants to begin.
#[derive(Clone, Debug)]
pub enum Begin {
    /// After this id, as sent by a stream.
    After(String),
    /// At the start, for a reader that has everything up to this id but whose protocol needs what came before.
    Again(String),
    /// With this many of the latest events.
    Tail(i64),
    Start,
}

/// The result of a request to follow.
#[derive(Debug)]
pub enum Resumed {
    Stream(Box<Follower>),
    /// The run, or the whole tree, has ended and the reader has seen all of it.
    Ended {
        status: Status,
        last_seq: Seq,
    },
}

/// Why a stream does not begin.
#[derive(Debug)]
pub enum ResumeError {
    /// Not a cursor.
    Invalid(Malformed),
    /// The cursor is beyond the log's end, or of a history that was lost.
    Ahead {
        last: String,
    },
    /// The run does not exist or belongs to another owner.
    NotFound,
    Store(store::Error),
}

impl From<store::Error> for ResumeError {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Malformed> for ResumeError {
    fn from(malformed: Malformed) -> Self {
        Self::Invalid(malformed)
    }
}

/// Checks that what was read is of the history under which a reader's cursor is admitted. If it is not, the log was
/// just set back; whether the cursor is valid is known once this process has noticed.
pub fn check_current(history: Tag, histories: &Histories) -> Result<(), store::Error> {
    if history == histories.current() { Ok(()) } else { Err(store::Error::timeout()) }
}

impl Timeline {
    /// Follows one run.
    pub async fn resume_run(
        &self,
        owner: &OwnerId,
        run: RunId,
        begin: &Begin,
        options: StreamOptions,
    ) -> Result<Resumed, ResumeError> {
        let histories = self.histories();
        let record = self.run(owner, run).await?.ok_or(ResumeError::NotFound)?;
        let (status, last_seq) = (record.head.status, record.head.last_seq);
        let after = match begin {
            Begin::After(cursor) | Begin::Again(cursor) => {
                let cursor: RunCursor = cursor.parse()?;
                if cursor.seq > last_seq || !self.admits(owner, run, cursor, &histories).await? {
                    self.check_history(owner, &histories).await?;
                    return Err(ResumeError::Ahead { last: last_seq.to_string() });
                }
                cursor.seq
            }
            Begin::Tail(count) => last_seq.back(*count),
            Begin::Start => Seq::ZERO,
        };
        let has_all = after == last_seq && status.is_terminal();
        if has_all && matches!(begin, Begin::After(_) | Begin::Again(_)) {
            self.check_history(owner, &histories).await?;
            return Ok(Resumed::Ended { status, last_seq });
        }
        let after = if matches!(begin, Begin::Again(_)) { Seq::ZERO } else { after };
        let contexts = &self.shared.contexts;
        let context = contexts.known(run, owner.as_str()).unwrap_or_else(|| contexts.remember(record.context));
        let mut follower = self.follow_run(context, after, histories, options);
        if has_all {
            follower.root_ended(status, last_seq);
        }
        Ok(Resumed::Stream(Box::new(follower)))
    }

    /// Follows a run and all its descendants.
    pub async fn resume_tree(
        &self,
        owner: &OwnerId,
        root: RunId,
        begin: &Begin,
        options: StreamOptions,
    ) -> Result<Resumed, ResumeError> {
        let histories = self.histories();
        let head = self.run(owner, root).await?.ok_or(ResumeError::NotFound)?.head;
        let scope = feed::Scope::Tree(root);
        let after = self.feed_cursor(owner, &scope, begin, &histories).await?;
        if matches!(begin, Begin::After(_)) && head.status.is_terminal() {
            let all_ended = self.store().feeds().tree(owner, root).await?.iter().all(|(_, ended)| *ended);
            if all_ended && self.store().feeds().page(owner, &scope, &after, 1).await?.events.is_empty() {
                self.check_history(owner, &histories).await?;
                return Ok(Resumed::Ended { status: head.status, last_seq: head.last_seq });
            }
        }
        let mut follower = self.feed(owner, scope, after, histories, options).await?;
        if head.status.is_terminal() {
            follower.root_ended(head.status, head.last_seq);
        }
        Ok(Resumed::Stream(Box::new(follower)))
    }

    /// Follows many runs of an owner.
    pub async fn resume_feed(
        &self,
        owner: &OwnerId,
        scope: feed::Scope,
        begin: &Begin,
        options: StreamOptions,
    ) -> Result<Resumed, ResumeError> {
        let histories = self.histories();
        let after = self.feed_cursor(owner, &scope, begin, &histories).await?;
        Ok(Resumed::Stream(Box::new(self.feed(owner, scope, after, histories, options).await?)))
    }

    async fn feed(
        &self,
        owner: &OwnerId,
        scope: feed::Scope,
        after: FeedCursor,
        histories: Arc<Histories>,
        options: StreamOptions,
    ) -> Result<Follower, store::Error> {
        let removed = self.store().feeds().removed(owner).await?;
        Ok(self.follow_feed(owner.clone(), scope, after, &removed, histories, options))
    }

    async fn feed_cursor(
        &self,
        owner: &OwnerId,
        scope: &feed::Scope,
        begin: &Begin,
        histories: &Histories,
    ) -> Result<FeedCursor, ResumeError> {
        match begin {
            Begin::After(cursor) | Begin::Again(cursor) => {
                let cursor: FeedCursor = cursor.parse()?;
                let tail = self.store().feeds().tail(owner).await?;
                check_current(tail.history(), histories)?;
                if !histories.admits(&cursor) || cursor.is_ahead_of(&tail) {
                    return Err(ResumeError::Ahead { last: tail.to_string() });
                }
                Ok(cursor.of_history(histories.current()))
            }
            Begin::Tail(count) => {
                let cursor = self.store().feeds().before_tail(owner, scope, *count).await?;
                check_current(cursor.history(), histories)?;
                Ok(cursor)
            }
            Begin::Start => Ok(FeedCursor::start().of_history(histories.current())),
        }
    }

    /// Fails if the log has left the history under which a cursor is checked: then what was read is not conclusive.
    async fn check_history(&self, owner: &OwnerId, histories: &Histories) -> Result<(), store::Error> {
        check_current(self.store().feeds().tail(owner).await?.history(), histories)
    }
}
