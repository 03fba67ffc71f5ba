//! What counts as misled after a set-back. Pure, and tested with planted lies in every run of `self-check`.
//!
//! A cursor of a lost event is rejected with 409, or what follows it is announced by a control frame, or the stream
//! ends: the reader then knows that it has to start over. What it must never get is the new log from its seq on, as if
//! nothing had happened, however long the new log has become. A stream that was open across the set-back is notified or
//! ended. Everything acknowledged afterwards is in the log, under the acknowledged seq.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use super::reader::Mark;
use crate::{judge::Run, self_check::Plant};

/// What a stream delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Event {
        run: Run,
        seq: u64,
        id: String,
    },
    /// A control frame's name.
    Control(String),
    Closed,
}

impl Word {
    pub(super) fn is_caught_up(&self) -> bool {
        matches!(self, Self::Control(name) if name == "stream.caught_up")
    }

    pub(super) fn place(&self) -> Option<(Run, u64)> {
        match self {
            Self::Event { run, seq, .. } => Some((*run, *seq)),
            _ => None,
        }
    }

    /// Whether it announces that what follows does not continue what came before.
    fn announces(&self) -> bool {
        match self {
            Self::Event { .. } => false,
            Self::Control(_) => !self.is_caught_up(),
            Self::Closed => true,
        }
    }
}

/// What a reader gets that reconnects with a cursor.
#[derive(Clone, Debug)]
pub(super) enum After {
    Refused { status: u16, code: String },
    Said(Vec<Word>),
}

/// What is wrong with the answer to the cursor of a lost event.
pub(super) fn judge_gone(after: &After) -> Option<String> {
    match after {
        After::Refused { status: 409 | 410, code } if !code.is_empty() => None,
        After::Refused { status, code } => Some(format!("was answered {status} {code}")),
        After::Said(words) => match words.first() {
            // A server that drains or is busy says nothing about the cursor.
            Some(Word::Control(name)) if name == "stream.draining" => Some("was told to come back".to_owned()),
            Some(word) if word.announces() => None,
            Some(Word::Event { id, .. }) => Some(format!("silently went on with {id}")),
            Some(_) => Some("was told that it has everything".to_owned()),
            None => Some("was told nothing".to_owned()),
        },
    }
}

/// The result of a cursor whose event still exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    GoesOn,
    /// It was told to start over, which is unnecessary but not a lie.
    Needlessly,
    Wrong(String),
}

/// After a valid cursor, each run continues with its next seq.
pub(super) fn judge_kept(after: &After, mark: &Mark) -> Kept {
    let words = match after {
        After::Refused { status: 409 | 410, .. } => return Kept::Needlessly,
        After::Refused { status, code } => return Kept::Wrong(format!("was answered {status} {code}")),
        After::Said(words) => words,
    };
    let mut heads: BTreeMap<Run, u64> = mark.heads.clone();
    for word in words {
        match word {
            Word::Event { run, seq, id } => {
                let head = heads.entry(*run).or_default();
                if *seq != *head + 1 {
                    return Kept::Wrong(format!("went on with {id} after seq {head} of the run"));
                }
                *head = *seq;
            }
            word if word.announces() => return Kept::Needlessly,
            _ => {}
        }
    }
    if heads == mark.heads { Kept::Wrong("brought nothing of the new log".to_owned()) } else { Kept::GoesOn }
}

/// What is wrong with a stream that was open when the database was set back. `cut` is before its end, `reachable` after
/// its return: what a stream delivers in between may have been on its way.
pub(super) fn judge_open(words: &[(Instant, Word)], cut: Instant, reachable: Instant) -> Option<String> {
    for (at, word) in words.iter().filter(|(at, _)| *at >= cut) {
        match word {
            word if word.announces() => return None,
            Word::Event { id, .. } if *at >= reachable => return Some(format!("went on with {id} without a word")),
            _ => {}
        }
    }
    Some("was never told".to_owned())
}

/// What is wrong with the log: gaps, and acknowledged events that are not there under their seqs.
pub(crate) fn judge_log(rows: &[(Run, u64, String)], acknowledged: &[(Run, String, u64)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut heads: BTreeMap<Run, u64> = BTreeMap::new();
    for (run, seq, _) in rows {
        let head = heads.entry(*run).or_default();
        if *seq != *head + 1 {
            wrong.push(format!("seq {seq} of run {run} after {head}"));
        }
        *head = *seq;
    }
    let stored: HashMap<(Run, &str), u64> = rows.iter().map(|(run, seq, id)| ((*run, id.as_str()), *seq)).collect();
    for (run, event_id, seq) in acknowledged {
        let found = stored.get(&(*run, event_id.as_str()));
        if found != Some(seq) {
            wrong.push(format!("{event_id} of run {run} was acknowledged as seq {seq} and is {found:?}"));
        }
    }
    wrong
}

/// What is wrong with the ids of a log that is read again: those of kept events changed, or a lost one was reused.
pub(super) fn judge_ids(
    words: &[Word],
    kept: &HashMap<(Run, u64), String>,
    gone: &HashMap<(Run, u64), String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for word in words {
        let Word::Event { run, seq, id } = word else { continue };
        if kept.get(&(*run, *seq)).is_some_and(|before| before != id) {
            wrong.push(format!("seq {seq} of run {run} has the id {id}, before the set-back it had another"));
        }
        if gone.get(&(*run, *seq)) == Some(id) {
            wrong.push(format!("the id {id} of run {run} belongs to an event that is gone as well"));
        }
    }
    wrong
}

fn event(seq: u64) -> Word {
    Word::Event { run: 0, seq, id: format!("{seq}") }
}

/// Lies, and cases that are not lies.
pub(crate) fn plants() -> Vec<Plant> {
    let [caught_up, draining, reset] =
        ["stream.caught_up", "stream.draining", "stream.reset"].map(|name| Word::Control(name.to_owned()));
    let refused = |status, code: &str| After::Refused { status, code: code.to_owned() };
    let said = |words: &[&Word]| After::Said(words.iter().map(|word| (*word).clone()).collect());
    let mark = Mark { id: "9".to_owned(), heads: BTreeMap::from([(0, 9)]) };
    let now = Instant::now();
    let (cut, reachable) = (now, now + std::time::Duration::from_secs(1));
    let late = reachable + std::time::Duration::from_secs(1);
    let rows = |seqs: &[u64]| seqs.iter().map(|seq| (0, *seq, format!("e{seq}"))).collect::<Vec<_>>();
    let ids = |id: &str| HashMap::from([((0, 10), id.to_owned())]);
    let plant = |name, seen| Plant { name, seen };
    vec![
        plant("a gone cursor that is refused", judge_gone(&refused(409, "cursor_ahead")).is_none()),
        plant("a gone cursor that is told", judge_gone(&said(&[&reset])).is_none()),
        plant("a gone cursor that is put off", judge_gone(&said(&[&draining])).is_some()),
        plant("a gone cursor that skips", judge_gone(&said(&[&event(15), &caught_up])).is_some()),
        plant("a gone cursor that has caught up", judge_gone(&said(&[&caught_up])).is_some()),
        plant("a gone cursor whose run has ended", judge_gone(&refused(204, "")).is_some()),
        plant("a kept cursor that goes on", judge_kept(&said(&[&event(10), &event(11)]), &mark) == Kept::GoesOn),
        plant("a kept cursor that skips", matches!(judge_kept(&said(&[&event(11)]), &mark), Kept::Wrong(_))),
        plant("a kept cursor that brings nothing", matches!(judge_kept(&said(&[&caught_up]), &mark), Kept::Wrong(_))),
        plant("an open stream that is ended", judge_open(&[(cut, Word::Closed)], cut, reachable).is_none()),
        plant("an open stream that is told nothing", judge_open(&[(cut, event(14))], cut, reachable).is_some()),
        plant("an open stream that goes on", judge_open(&[(late, event(15))], cut, reachable).is_some()),
        plant("a whole log", judge_log(&rows(&[1, 2, 3]), &[(0, "e2".to_owned(), 2)]).is_empty()),
        plant("a hole in a log", !judge_log(&rows(&[1, 3]), &[]).is_empty()),
        plant("an acknowledged event that is gone", !judge_log(&rows(&[1]), &[(0, "e2".to_owned(), 2)]).is_empty()),
        plant("a kept id that changed", !judge_ids(&[event(10)], &ids("10.x"), &HashMap::new()).is_empty()),
        plant("an id that is given again", !judge_ids(&[event(10)], &HashMap::new(), &ids("10")).is_empty()),
    ]
}
