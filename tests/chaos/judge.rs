//! Compares what readers got with what the database has. Pure: nothing here reads, waits or tolerates.
//!
//! Each connection is first judged by itself: after the cursor it was opened with it must deliver the next seq of each
//! run, then the next, and nothing else. Only then are all connections of a reader combined and compared with the
//! table. `self_check` plants every kind of damage and shows that it is detected.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::AddAssign,
};

/// The index of a run in the list of runs of a scenario.
pub(crate) type Run = usize;

/// Stands for bytes: two texts with the same print count as the same text.
pub(crate) fn print_of(bytes: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// An event as delivered by a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) run: Run,
    pub(crate) seq: u64,
    /// Of the whole envelope.
    pub(crate) print: u64,
}

/// One connection of one reader.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// Per run the last seq before the cursor this connection was opened with; absent is 0.
    pub(crate) after: BTreeMap<Run, u64>,
    pub(crate) deliveries: Vec<Delivery>,
}

/// A row of the table, read with SQL, and the line the server returns for it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) seq: u64,
    pub(crate) event_id: Option<String>,
    /// Of the payload in the table.
    pub(crate) payload: u64,
    /// Of the whole line of the page endpoint.
    pub(crate) print: u64,
}

/// Each run's rows, in the order of the primary key.
pub(crate) type Table = Vec<Vec<Row>>;

/// The acknowledgement a writer received.
#[derive(Clone, Debug)]
pub(crate) struct Ack {
    pub(crate) run: Run,
    pub(crate) event_id: String,
    pub(crate) seq: u64,
}

/// What writers sent: run and `event_id`, and the print of the payload.
pub(crate) type Attempts = HashMap<(Run, String), u64>;

/// Differences, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// In the table and not delivered, or a gap in the table.
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) out_of_order: u64,
    /// Live, replayed, stored or sent bytes that differ.
    pub(crate) differing: u64,
    /// Acknowledged, and not in the table under the acknowledged seq.
    pub(crate) missing: u64,
    /// Stored or delivered although no writer sent it.
    pub(crate) invented: u64,
    /// Streams that broke the rules of the protocol: frames, ids, deltas, control frames.
    pub(crate) malformed: u64,
}

impl Tally {
    pub(crate) fn is_clean(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.differing += other.differing;
        self.missing += other.missing;
        self.invented += other.invented;
        self.malformed += other.malformed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, duplicated, out_of_order, differing, missing, invented, malformed } = self;
        write!(
            f,
            "lost {lost}, duplicated {duplicated}, out of order {out_of_order}, bytes differing {differing}, \
             acknowledged and missing {missing}, never sent {invented}, malformed {malformed}"
        )
    }
}

/// Judges one connection by itself: cursor + 1, cursor + 2, … in each run.
pub(crate) fn judge_connection(connection: &Connection) -> Tally {
    let mut tally = Tally::default();
    let mut heads = connection.after.clone();
    let mut skipped = BTreeSet::new();
    for delivery in &connection.deliveries {
        let head = heads.entry(delivery.run).or_default();
        if delivery.seq > *head {
            skipped.extend((*head + 1..delivery.seq).map(|seq| (delivery.run, seq)));
            *head = delivery.seq;
        } else if skipped.remove(&(delivery.run, delivery.seq)) {
            tally.out_of_order += 1;
        } else {
            tally.duplicated += 1;
        }
    }
    tally.lost += skipped.len() as u64;
    tally
}

/// Judges all connections of a reader that should have seen all of these runs.
pub(crate) fn judge_reader(table: &Table, scope: &[Run], connections: &[Connection]) -> Tally {
    let mut tally = Tally::default();
    let mut once = BTreeSet::new();
    for connection in connections {
        tally += judge_connection(connection);
        for delivery in &connection.deliveries {
            once.insert((delivery.run, delivery.seq));
            let index = delivery.seq.checked_sub(1).and_then(|index| usize::try_from(index).ok());
            let row = index.and_then(|index| table.get(delivery.run)?.get(index));
            match row {
                Some(row) if row.seq == delivery.seq => tally.differing += u64::from(row.print != delivery.print),
                _ => tally.invented += 1,
            }
        }
    }
    for run in scope {
        let rows = table.get(*run).map(Vec::as_slice).unwrap_or_default();
        tally.lost += rows.iter().filter(|row| !once.contains(&(*run, row.seq))).count() as u64;
    }
    tally
}

/// Judges the table itself: 1, 2, 3 … without a gap; everything acknowledged, once, and nothing that was not sent.
pub(crate) fn judge_table(table: &Table, acks: &[Ack], attempts: &Attempts) -> Tally {
    let mut tally = judge_rows(table);
    let mut stored: HashMap<(Run, &str), u64> = HashMap::new();
    for (run, row, event_id) in identified(table) {
        stored.insert((run, event_id), row.seq);
        match attempts.get(&(run, event_id.to_owned())) {
            None => tally.invented += 1,
            Some(payload) => tally.differing += u64::from(*payload != row.payload),
        }
    }
    for ack in acks {
        tally.missing += u64::from(stored.get(&(ack.run, ack.event_id.as_str())) != Some(&ack.seq));
    }
    tally
}

/// Judges a table independently of what was sent: 1, 2, 3 … without a gap, and no event twice.
pub(crate) fn judge_rows(table: &Table) -> Tally {
    let mut tally = Tally::default();
    for rows in table {
        let mut head = 0;
        for row in rows {
            match row.seq.cmp(&(head + 1)) {
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => tally.lost += row.seq - head - 1,
                std::cmp::Ordering::Less => tally.duplicated += 1,
            }
            head = head.max(row.seq);
        }
    }
    let mut once = BTreeSet::new();
    tally.duplicated += identified(table).filter(|(run, _, event_id)| !once.insert((*run, *event_id))).count() as u64;
    tally
}

fn identified(table: &Table) -> impl Iterator<Item = (Run, &Row, &str)> {
    let rows = table.iter().enumerate().flat_map(|(run, rows)| rows.iter().map(move |row| (run, row)));
    rows.filter_map(|(run, row)| Some((run, row, row.event_id.as_deref()?)))
}

/// What happened around one fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// Events acknowledged since the trial before.
    pub(crate) acknowledged: u64,
    /// Faults while writers were at work.
    pub(crate) faults: u64,
}

/// A trial that proves nothing counts as failed.
pub(crate) const ACKNOWLEDGED_MIN: u64 = 200;

impl Trial {
    pub(crate) fn counts(self) -> bool {
        self.acknowledged >= ACKNOWLEDGED_MIN && self.faults > 0
    }
}
