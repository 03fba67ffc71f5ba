//! Pages of lists: what a request asks for, and the cursor of the next page.
//!
//! A cursor is the list's letter and the key of the last row. Clients send it back unchanged.

use std::{fmt::Display, str::FromStr};

use chrono::{DateTime, Datelike as _, Utc};

use super::{extract::Query, problem::Problem};
use crate::{
    domain::{
        artifact::ArtifactId,
        id::{Name, RunId, Seq, ThreadId},
        limits::{PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX},
        session::inbound::UserId,
        transcript::SavedName,
    },
    store::{
        checkpoints::CheckpointsAfter,
        interrupts::InterruptKey,
        page::Page,
        runs::list::{Order, Place, Sort},
    },
};

/// A key that a cursor can encode.
pub(super) trait PageKey: Sized {
    const LETTER: char;

    fn spell(&self) -> String;

    fn read(text: &str) -> Option<Self>;
}

/// An id whose lists are sorted by creation time and then by the id.
trait NewestFirst: Display + FromStr {
    const LETTER: char;
}

impl NewestFirst for RunId {
    const LETTER: char = 'r';
}

impl NewestFirst for ThreadId {
    const LETTER: char = 't';
}

/// The id of a session.
impl NewestFirst for Name {
    const LETTER: char = 's';
}

impl<I: NewestFirst> PageKey for (DateTime<Utc>, I) {
    const LETTER: char = I::LETTER;

    fn spell(&self) -> String {
        format!("{}.{}", self.0.timestamp_micros(), self.1)
    }

    fn read(text: &str) -> Option<Self> {
        let (micros, id) = text.split_once('.')?;
        Some((time_of(micros.parse().ok()?)?, id.parse().ok()?))
    }
}

/// A place in a list of runs with its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunPlace {
    pub order: Order,
    pub place: Place,
}

/// Spellings of orders in a cursor; the default order has none.
const ORDERS: [(Sort, bool, &str); 12] = [
    (Sort::Created, false, ""),
    (Sort::Created, true, "c"),
    (Sort::Updated, false, "U"),
    (Sort::Updated, true, "u"),
    (Sort::Duration, false, "D"),
    (Sort::Duration, true, "d"),
    (Sort::Events, false, "E"),
    (Sort::Events, true, "e"),
    (Sort::Tokens, false, "T"),
    (Sort::Tokens, true, "t"),
    (Sort::Cost, false, "C"),
    // `c` is taken.
    (Sort::Cost, true, "o"),
];

impl PageKey for RunPlace {
    const LETTER: char = 'r';

    fn spell(&self) -> String {
        let Order { sort, is_ascending } = self.order;
        let order = ORDERS.iter().find(|(of, ascends, _)| (*of, *ascends) == (sort, is_ascending));
        format!("{}{}.{}", order.map_or("", |(.., word)| word), self.place.key, self.place.run)
    }

    fn read(text: &str) -> Option<Self> {
        let (before, run) = text.split_once('.')?;
        let key = before.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let (sort, is_ascending, _) =
            ORDERS.into_iter().find(|(.., word)| *word == &before[..before.len() - key.len()])?;
        let key: i64 = key.parse().ok()?;
        if matches!(sort, Sort::Created | Sort::Updated) {
            time_of(key)?;
        }
        Some(Self { order: Order { sort, is_ascending }, place: Place { key, run: run.parse().ok()? } })
    }
}

/// The time of a cursor; `None` if no row can have it.
fn time_of(micros: i64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_micros(micros).filter(|at| (1970..=9999).contains(&at.year()))
}

impl PageKey for (RunId, Seq) {
    const LETTER: char = 'm';

    fn spell(&self) -> String {
        format!("{}.{}", self.0, self.1)
    }

    fn read(text: &str) -> Option<Self> {
        let (run, seq) = text.split_once('.')?;
        Some((run.parse().ok()?, Seq::new(seq.parse().ok()?)?))
    }
}

impl PageKey for InterruptKey {
    const LETTER: char = 'i';

    fn spell(&self) -> String {
        format!("{}.{}.{}", self.0.timestamp_micros(), self.1, self.2)
    }

    fn read(text: &str) -> Option<Self> {
        let (at, place) = text.split_once('.')?;
        let (run, seq) = <(RunId, Seq)>::read(place)?;
        Some((time_of(at.parse().ok()?)?, run, seq))
    }
}

impl PageKey for Seq {
    const LETTER: char = 'q';

    fn spell(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        Self::new(text.parse().ok()?)
    }
}

impl PageKey for CheckpointsAfter {
    const LETTER: char = 'c';

    fn spell(&self) -> String {
        hex::encode(serde_json::to_vec(&(&self.checkpoint_id, &self.thread_id, &self.ns)).unwrap_or_default())
    }

    fn read(text: &str) -> Option<Self> {
        let (checkpoint_id, thread_id, ns) = serde_json::from_slice(&hex::decode(text).ok()?).ok()?;
        Some(Self { checkpoint_id, thread_id, ns })
    }
}

macro_rules! spelled_as_itself {
    ($($key:ty: $letter:literal,)*) => {$(
        impl PageKey for $key {
            const LETTER: char = $letter;

            fn spell(&self) -> String {
                self.to_string()
            }

            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

spelled_as_itself! {
    ArtifactId: 'a',
    UserId: 'u',
    SavedName: 'n',
}

impl Query {
    /// The page that `cursor` and `limit` request.
    pub(super) fn page<K: PageKey>(&self) -> Result<Page<K>, Problem> {
        let limit = self.number("limit", PAGE_ROWS_DEFAULT, 1, PAGE_ROWS_MAX)?;
        let read = |text: &str| text.strip_prefix(K::LETTER).and_then(K::read).ok_or_else(Problem::bad_cursor);
        Ok(Page { after: self.text("cursor").map(read).transpose()?, limit })
    }
}

/// The cursor of the page after one that ends with `last`; `None` if there is none.
pub(super) fn next_cursor<K: PageKey>(more: bool, last: Option<K>) -> Option<String> {
    last.filter(|_| more).map(|key| format!("{}{}", K::LETTER, key.spell()))
}
