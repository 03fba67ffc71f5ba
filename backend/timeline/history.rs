//! A database that was set back: detected, reported to readers, and continued as another history.
//!
//! It is detected wherever the log is read: by a lane before it writes, by the relay, and at the start of a server,
//! which records in a file of its own how far it had come ([`super::marks`]). Every check uses the same three facts
//! ([`judge`]): how far this server had come, in which histories, and where the database says it was written. Then all
//! lanes pause, the state of the log is read, and unless another process was first, a new history begins there
//! (`domain::history`). Readers' streams end, and readers reconnect with their cursors, which name their history.

use super::{Contexts, health::Health, marks::Marks, publish::Gate};
use crate::{
    clock::IdSource,
    domain::{
        cursor::FeedCursor,
        history::{Histories, Tag},
    },
    store::{self, Outage, Store, history::LogState},
};

/// What happened to the log since a server last saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the one that this server knows, possibly grown.
    Same,
    /// It was set back, and another server has already begun the next history.
    Begun,
    /// It was set back, or may have been, and no server has handled it yet.
    SetBack,
}

/// Judges the state of the log, for a server that knows these histories and has shown its readers what was `seen`.
pub(super) fn judge(known: &Histories, seen: &FeedCursor, standing: &LogState) -> Verdict {
    let same = known.current() == standing.histories.current();
    let is_behind = same && seen.is_ahead_of(&standing.tail);
    if standing.is_elsewhere || is_behind || !standing.histories.contains(known.current()) {
        Verdict::SetBack
    } else if same {
        Verdict::Same
    } else {
        Verdict::Begun
    }
}

/// Begins histories, or adopts those that other processes have begun. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Forks {
    pub store: Store,
    pub gate: Gate,
    pub contexts: Contexts,
    pub marks: Marks,
    pub ids: IdSource,
    pub health: Health,
}

impl Forks {
    /// Checks whether the log was set back and, if it was, moves this process to the log's state.
    pub(super) async fn reconcile(&self) -> Result<(), store::Error> {
        let reconciled = self.try_reconcile().await;
        self.health
            .reconciled(reconciled.as_ref().copied().map_err(|error| error.outage().unwrap_or(Outage::Forbidden)));
        reconciled.inspect_err(|error| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "database restored to an earlier state: it cannot be read, or a new history cannot be stored"
            );
        })
    }

    async fn try_reconcile(&self) -> Result<(), store::Error> {
        let turns = self.gate.all_turns().await;
        let known = self.gate.histories();
        let standing = self.store.log_standing().await?;
        let published = self.gate.tail();
        let standing = match judge(&known, &published, &standing) {
            Verdict::Same => return Ok(()),
            Verdict::SetBack => begin(&self.store, &self.ids, &standing, &known, &published).await?,
            Verdict::Begun => {
                tracing::warn!(tail = %standing.tail, "another process detected a restored database");
                standing
            }
        };
        self.contexts.forget_all();
        self.marks.replace(&standing.tail, &standing.histories);
        self.gate.reset(&turns, &standing.tail, standing.histories);
        metrics::counter!("runreel_histories_total").increment(1);
        Ok(())
    }
}

/// The state of the log at the start of a process; begins a new history if `wanted` or if the log was set back.
pub(super) async fn at_start(
    store: &Store,
    marks: &Marks,
    ids: &IdSource,
    wanted: bool,
) -> Result<LogState, store::Error> {
    let standing = store.log_standing().await?;
    let (seen, known) = marks.read();
    let standing = if wanted || judge(&known, &seen, &standing) == Verdict::SetBack {
        begin(store, ids, &standing, &known, &seen).await?
    } else {
        standing
    };
    store.note_origin().await?;
    marks.replace(&standing.tail, &standing.histories);
    Ok(standing)
}

async fn begin(
    store: &Store,
    ids: &IdSource,
    standing: &LogState,
    known: &Histories,
    seen: &FeedCursor,
) -> Result<LogState, store::Error> {
    let secret = ids.secret();
    let tag = Tag::from_random(u32::from_be_bytes([secret[28], secret[29], secret[30], secret[31]]));
    let lost = standing.histories.lost_of(known);
    store.begin_history(standing.histories.current(), &lost, tag).await?;
    let begun = store.log_standing().await?;
    tracing::error!(
        stands = %begun.tail, had_come = %seen,
        "the database was restored, or replaced by another copy of it, and may have lost events that readers have seen. \
         The log continues from there as a new history; later cursors are answered with 409 cursor_ahead"
    );
    Ok(begun)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::history::Fork;

    fn histories(cuts: &[(u32, i64)]) -> Histories {
        let fork = |(n, cut): &(u32, i64)| Fork { tag: Tag::from_random(n << 1), cut: vec![*cut], is_lost: false };
        Histories::of(cuts.iter().map(fork).collect())
    }

    fn stands(position: i64, cuts: &[(u32, i64)], is_elsewhere: bool) -> LogState {
        let histories = histories(cuts);
        LogState { tail: FeedCursor::of(vec![position]).of_history(histories.current()), histories, is_elsewhere }
    }

    #[test]
    fn a_log_is_set_back_when_it_is_behind_or_elsewhere_or_has_forgotten_a_history() {
        let judge = |known: &[(u32, i64)], seen, standing| {
            super::judge(&histories(known), &FeedCursor::of(vec![seen]), &standing)
        };
        assert_eq!(judge(&[], 50, stands(50, &[], false)), Verdict::Same);
        assert_eq!(judge(&[], 50, stands(70, &[], false)), Verdict::Same);
        assert_eq!(judge(&[], 50, stands(49, &[], false)), Verdict::SetBack);
        assert_eq!(
            judge(&[], 50, stands(70, &[], true)),
            Verdict::SetBack,
            "another server has outgrown what was lost"
        );
        assert_eq!(judge(&[], 100, stands(70, &[(1, 50)], false)), Verdict::Begun, "however old the note is");
        assert_eq!(judge(&[], 100, stands(70, &[(1, 50)], true)), Verdict::SetBack, "set back once more");
        assert_eq!(judge(&[(1, 50)], 60, stands(60, &[(1, 50)], false)), Verdict::Same);
        assert_eq!(judge(&[(1, 50)], 60, stands(70, &[], false)), Verdict::SetBack);
        assert_eq!(judge(&[(1, 50)], 60, stands(70, &[(2, 40)], false)), Verdict::SetBack);
    }

    #[test]
    fn a_server_without_a_note_goes_by_where_the_log_is_written() {
        let judge = |standing| super::judge(&Histories::default(), &FeedCursor::start(), &standing);
        assert_eq!(judge(stands(70, &[], false)), Verdict::Same);
        assert_eq!(judge(stands(70, &[], true)), Verdict::SetBack);
    }
}
