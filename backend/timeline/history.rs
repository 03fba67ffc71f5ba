//! A database that was set back: noticed, told to readers, and written on as another history.
//!
//! It is noticed wherever the log is looked at: by a lane before it writes, by the relay, by a page of a reader, and at
//! the start of a server, which remembers in a file of its own how far it had come ([`super::marks`]). Then every lane
//! stands still for a moment, the database is asked what it holds, and unless another process was first, a new history
//! begins there (`domain::history`). Readers are ended and come back with their cursors, which say of which history they
//! are.

use super::{Contexts, marks::Marks, publish::Publisher};
use crate::{
    clock::IdSource,
    domain::{
        cursor::FeedCursor,
        history::{Histories, Tag},
    },
    store::{self, Store, history::Standing},
};

/// Begins histories, or adopts those that other processes have begun. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Forks {
    pub store: Store,
    pub publisher: Publisher,
    pub contexts: Contexts,
    pub marks: Marks,
    pub ids: IdSource,
}

impl Forks {
    /// Looks whether the database stands behind what readers were shown or is in another history, and sets this process
    /// to where it stands. Does nothing when all is well.
    pub(super) async fn settle(&self) -> Result<(), store::Error> {
        let turns = self.publisher.all_turns().await;
        let known = self.publisher.histories();
        let standing = self.store.log_standing().await?;
        let published = self.publisher.tail();
        let same = standing.histories.current() == known.current();
        if same && !published.is_ahead_of(&standing.tail) {
            return Ok(());
        }
        let has_lost = !standing.histories.contains(known.current()) || (same && published.is_ahead_of(&standing.tail));
        let standing = if has_lost {
            begin(&self.store, &self.ids, &standing, &known, &published).await?
        } else {
            tracing::warn!(tail = %standing.tail, "another process noticed that the database was set back");
            standing
        };
        self.contexts.forget_all();
        self.marks.replace(&standing.tail, &standing.histories);
        self.publisher.reset(&turns, &standing.tail, standing.histories);
        metrics::counter!("runreel_histories_total").increment(1);
        Ok(())
    }
}

/// Where the log stands at the start of a process, after a new history has begun if the log was set back meanwhile.
pub(super) async fn at_start(
    store: &Store,
    marks: &Marks,
    ids: &IdSource,
    wanted: bool,
) -> Result<Standing, store::Error> {
    let standing = store.log_standing().await?;
    let origin = store.origin().await?;
    let (seen, known) = marks.read();
    let set_back = match &seen {
        Some(seen) => seen.is_ahead_of(&standing.tail) || !standing.histories.contains(known.current()),
        // Without a memory of its own a server goes by the cluster: another one holds a copy.
        None => origin.before.as_ref().is_some_and(|before| *before != origin.now),
    };
    let has_events = standing.tail.lanes().any(|(_, position)| position > 0) || seen.is_some();
    let standing = if (set_back || wanted) && has_events {
        begin(store, ids, &standing, &known, &seen.unwrap_or_default()).await?
    } else {
        standing
    };
    if origin.before.as_ref() != Some(&origin.now) {
        store.note_origin(&origin.now).await?;
    }
    marks.replace(&standing.tail, &standing.histories);
    Ok(standing)
}

async fn begin(
    store: &Store,
    ids: &IdSource,
    standing: &Standing,
    known: &Histories,
    seen: &FeedCursor,
) -> Result<Standing, store::Error> {
    let secret = ids.secret();
    let tag = Tag::from_random(u32::from_be_bytes([secret[28], secret[29], secret[30], secret[31]]));
    let all = standing.histories.after(known);
    let lost = &all.forks()[..all.forks().len() - standing.histories.forks().len()];
    store.begin_history(standing.histories.current(), lost, tag).await?;
    let begun = store.log_standing().await?;
    tracing::error!(
        stands = %begun.tail, had_come = %seen,
        "the database stands behind what this server has shown its readers: it was restored or replaced by a replica \
         that was behind. The log goes on from there as another history; cursors beyond are answered with 409 cursor_ahead"
    );
    Ok(begun)
}
