//! Histories of the log.
//!
//! A database can be set back: restored from a backup, or replaced by a lagging replica. Readers have then seen events
//! that no longer exist, and their numbers are assigned again. From then on the log is a new history, and its cursors
//! carry its tag, so that a position in the lost part is never mistaken for one in the new history.
//!
//! The first history has no tag, and most logs never have another.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{cursor::FeedCursor, id::Malformed};

/// The name of a history: 31 random bits, written as eight hexadecimal digits. Random, because a counter in the
/// database would be set back with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tag(u32);

impl Tag {
    /// The first history of the log.
    pub const FIRST: Self = Self(0);

    /// A new tag from random bits.
    pub fn from_random(bits: u32) -> Self {
        Self((bits >> 1).max(1))
    }

    /// A tag as stored in the database.
    pub fn stored(number: i64) -> Self {
        Self(u32::try_from(number).unwrap_or(0))
    }

    pub fn number(self) -> i64 {
        i64::from(self.0)
    }

    pub fn is_first(self) -> bool {
        self == Self::FIRST
    }
}

/// With the dot that separates it from the rest of a cursor; empty for the first history.
impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_first() { Ok(()) } else { write!(f, ".{:08x}", self.0) }
    }
}

impl FromStr for Tag {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        const RULE: Malformed = Malformed("what follows the point in a cursor is eight hexadecimal digits");
        let digits = text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match u32::from_str_radix(text, 16) {
            Ok(number) if digits && number > 0 => Ok(Self(number)),
            _ => Err(RULE),
        }
    }
}

/// Where a history begins: everything in the lanes up to here is shared with the earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    pub tag: Tag,
    /// The last shared position of each lane.
    pub cut: Vec<i64>,
    /// The database was set back to before this history and has none of its events.
    #[serde(default)]
    pub is_lost: bool,
}

impl Fork {
    fn at(&self, lane: u8) -> i64 {
        self.cut.get(usize::from(lane)).copied().unwrap_or(0)
    }
}

/// Every history the log has had after its first, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histories(Vec<Fork>);

impl Histories {
    pub fn of(forks: Vec<Fork>) -> Self {
        Self(forks)
    }

    pub fn forks(&self) -> &[Fork] {
        &self.0
    }

    /// The history being written.
    pub fn current(&self) -> Tag {
        self.0.last().map_or(Tag::FIRST, |fork| fork.tag)
    }

    pub fn contains(&self, tag: Tag) -> bool {
        tag.is_first() || self.0.iter().any(|fork| fork.tag == tag)
    }

    /// The history in which the event now at this position was written.
    pub fn of_position(&self, lane: u8, position: i64) -> Tag {
        let written = |fork: &&Fork| !fork.is_lost && fork.at(lane) < position;
        self.0.iter().rev().find(written).map_or(Tag::FIRST, |fork| fork.tag)
    }

    /// Whether everything that a feed's cursor has passed is still in the log.
    pub fn admits(&self, cursor: &FeedCursor) -> bool {
        let later = match self.0.iter().position(|fork| fork.tag == cursor.history()) {
            // What a lost history does not share with earlier ones no longer exists.
            Some(at) => &self.0[at + usize::from(!self.0[at].is_lost)..],
            None if cursor.history().is_first() => &self.0[..],
            None => return false,
        };
        later.iter().all(|fork| cursor.lanes().all(|(lane, position)| position <= fork.at(lane)))
    }

    /// The histories of `others` that are missing here, because the database was set back. They are ordered before all
    /// that are here, which were written, or restored, after the others were lost.
    pub fn lost_of(&self, others: &Self) -> Vec<Fork> {
        let missing = others.0.iter().filter(|fork| !self.contains(fork.tag));
        missing.map(|fork| Fork { is_lost: true, ..fork.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(n: u32) -> Tag {
        Tag::from_random(n << 1)
    }

    fn cursor(position: i64, history: Tag) -> FeedCursor {
        FeedCursor::of(vec![position]).of_history(history)
    }

    fn fork(n: u32, cut: i64) -> Fork {
        Fork { tag: tag(n), cut: vec![cut], is_lost: false }
    }

    #[test]
    fn a_tag_has_one_spelling() {
        assert_eq!(tag(0xab).to_string(), ".000000ab");
        assert_eq!("000000ab".parse::<Tag>().unwrap(), tag(0xab));
        for bad in ["", "0", "00000000", "000000AB", "+00000ab", "000000ab0", "ｆｆｆｆｆｆｆｆ"] {
            assert!(bad.parse::<Tag>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_event_belongs_to_the_last_history_that_began_before_it() {
        let histories = Histories::of(vec![fork(1, 50), fork(2, 30)]);
        assert_eq!([20, 30, 31, 60].map(|at| histories.of_position(0, at)), [Tag::FIRST, Tag::FIRST, tag(2), tag(2)]);
        let histories = Histories::of(vec![fork(1, 30), fork(2, 50)]);
        assert_eq!([30, 31, 50, 51].map(|at| histories.of_position(0, at)), [Tag::FIRST, tag(1), tag(1), tag(2)]);
    }

    #[test]
    fn a_cursor_is_admitted_as_far_as_every_later_history_shares_its_past() {
        let histories = Histories::of(vec![fork(1, 50), fork(2, 30)]);
        assert!(histories.admits(&cursor(30, Tag::FIRST)));
        assert!(!histories.admits(&cursor(31, Tag::FIRST)), "it was cut off by the second");
        assert!(!histories.admits(&cursor(31, tag(1))));
        assert!(histories.admits(&cursor(31, tag(2))));
        assert!(!histories.admits(&cursor(1, tag(3))), "nobody knows this one");
    }

    #[test]
    fn what_a_set_back_database_forgot_is_known_as_lost() {
        let (known, there) = (Histories::of(vec![fork(1, 50), fork(2, 60)]), Histories::of(vec![fork(2, 60)]));
        assert_eq!(there.lost_of(&known), [Fork { is_lost: true, ..fork(1, 50) }]);
        assert_eq!(known.lost_of(&known), []);
    }

    #[test]
    fn no_cursor_of_a_lost_history_is_admitted_behind_its_cut() {
        let lost = |n, cut| Fork { is_lost: true, ..fork(n, cut) };
        // 1 began at 50 and was lost by a restore of an older backup, from which 3 began at 40; then 4 at 70.
        let histories = Histories::of(vec![lost(1, 50), fork(3, 40), fork(4, 70)]);
        assert!(!histories.admits(&cursor(60, tag(1))), "3 has written 41 to 70");
        assert_eq!(histories.of_position(0, 60), tag(3));
        assert!(histories.admits(&cursor(40, tag(1))) && !histories.admits(&cursor(41, tag(1))));
        // 1 began at 50, behind the cut of 2, and was lost by a restore of what 2 had been.
        let histories = Histories::of(vec![lost(1, 50), fork(2, 60), fork(3, 90)]);
        assert!(!histories.admits(&cursor(55, tag(1))), "the log holds another 51 to 60");
        assert!(histories.admits(&cursor(50, tag(1))));
        assert_eq!(histories.of_position(0, 55), Tag::FIRST);
    }
}
