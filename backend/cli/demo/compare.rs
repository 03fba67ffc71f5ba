//! What readers saw against what the table holds. Pure, so that its own tests can plant every kind of damage.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::AddAssign,
};

use serde::Deserialize;

use crate::domain::id::{EventId, RunId};

/// One event as it came over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) run_id: RunId,
    pub(super) seq: i64,
    pub(super) event_id: Option<EventId>,
    /// The whole envelope, to the byte.
    pub(super) bytes: String,
}

impl Line {
    /// Reads an envelope; `None` for what is no event of the log (a delta, a control frame).
    pub(super) fn read(bytes: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Envelope {
            run_id: RunId,
            seq: Option<i64>,
            event_id: Option<EventId>,
        }
        let Envelope { run_id, seq, event_id } = serde_json::from_str(bytes).ok()?;
        Some(Self { run_id, seq: seq?, event_id, bytes: bytes.to_owned() })
    }
}

/// Differences, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) out_of_order: u64,
    /// Not the bytes of the table, or not in the table at all.
    pub(super) differing: u64,
}

impl Tally {
    pub(super) fn is_clean(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.differing += other.differing;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, duplicated, out_of_order, differing } = self;
        write!(f, "lost {lost}, duplicated {duplicated}, out of order {out_of_order}, bytes differing {differing}")
    }
}

/// Each run's events as the table holds them.
pub(super) type Table = BTreeMap<RunId, Vec<Line>>;

/// Judges one reader that should have seen these runs whole, each of them in order.
pub(super) fn judge_reader(table: &Table, runs: &[RunId], seen: &[Line]) -> Tally {
    let mut tally = Tally::default();
    let stored: BTreeMap<(RunId, i64), &str> = runs
        .iter()
        .flat_map(|run_id| table.get(run_id).into_iter().flatten())
        .map(|line| ((line.run_id, line.seq), line.bytes.as_str()))
        .collect();
    let mut once = BTreeSet::new();
    let mut highest: BTreeMap<RunId, i64> = BTreeMap::new();
    for line in seen {
        let key = (line.run_id, line.seq);
        if !once.insert(key) {
            tally.duplicated += 1;
        } else if highest.get(&line.run_id).is_some_and(|highest| *highest > line.seq) {
            tally.out_of_order += 1;
        }
        let top = highest.entry(line.run_id).or_default();
        *top = (*top).max(line.seq);
        if stored.get(&key) != Some(&line.bytes.as_str()) {
            tally.differing += 1;
        }
    }
    tally.lost = stored.keys().filter(|key| !once.contains(*key)).count() as u64;
    tally
}

/// Judges the table itself: 1, 2, 3 … without a hole, and every acknowledged event in it exactly once.
pub(super) fn judge_table(table: &Table, acknowledged: &[(RunId, EventId)]) -> Tally {
    let mut tally = Tally::default();
    let mut stored: BTreeMap<(RunId, &EventId), u64> = BTreeMap::new();
    for lines in table.values() {
        let mut before = 0;
        for line in lines {
            match line.seq - before {
                1 => {}
                0 => tally.duplicated += 1,
                gap if gap > 1 => tally.lost += gap.unsigned_abs() - 1,
                _ => tally.out_of_order += 1,
            }
            before = before.max(line.seq);
            if let Some(event_id) = &line.event_id {
                *stored.entry((line.run_id, event_id)).or_default() += 1;
            }
        }
    }
    for (run_id, event_id) in acknowledged {
        match stored.get(&(*run_id, event_id)) {
            None => tally.lost += 1,
            Some(1) => {}
            Some(times) => tally.duplicated += times - 1,
        }
    }
    tally
}

#[cfg(test)]
mod tests;
