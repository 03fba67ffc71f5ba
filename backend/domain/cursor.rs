//! A reader's position: a [`RunCursor`] in one run, a [`FeedCursor`] in a feed of many runs.
//!
//! A feed has one strictly increasing position per writer lane, assigned in commit order under the lane's row lock. A
//! reader's position is therefore a small vector, lane → position. On the wire it is opaque and starts with `p`.
//!
//! Once the log has been set back, both carry the tag of the history they were issued in: `42.9f86d081`.

use std::{fmt, str::FromStr};

use super::{
    history::Tag,
    id::{Malformed, Seq},
};

/// Most lanes of a database; a feed cursor has one number for each.
pub const LANES_MAX: usize = 16;

/// The last event of a run that a reader has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCursor {
    pub seq: Seq,
    pub history: Tag,
}

impl fmt::Display for RunCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.seq, self.history)
    }
}

impl FromStr for RunCursor {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        const RULE: Malformed = Malformed("a run's cursor is the id of the last frame seen, the seq of an event");
        let (seq, history) = parted(text)?;
        let seq = number(seq).and_then(Seq::new).ok_or(RULE)?;
        Ok(Self { seq, history })
    }
}

/// A feed reader's position in each lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FeedCursor {
    positions: Vec<i64>,
    history: Tag,
}

impl FeedCursor {
    pub fn start() -> Self {
        Self::default()
    }

    pub fn of(positions: Vec<i64>) -> Self {
        Self { positions, history: Tag::FIRST }
    }

    /// The same position, with this history.
    #[must_use]
    pub fn of_history(self, history: Tag) -> Self {
        Self { history, ..self }
    }

    /// The history in which it was issued.
    pub fn history(&self) -> Tag {
        self.history
    }

    /// The last position seen in a lane; 0 before the first.
    pub fn at(&self, lane: u8) -> i64 {
        self.positions.get(usize::from(lane)).copied().unwrap_or(0)
    }

    /// Every lane with its position.
    pub fn lanes(&self) -> impl Iterator<Item = (u8, i64)> {
        self.positions.iter().zip(0u8..).map(|(position, lane)| (lane, *position))
    }

    /// Records that everything up to `position` in `lane` was seen.
    pub fn advance(&mut self, lane: u8, position: i64) {
        let lane = usize::from(lane);
        if self.positions.len() <= lane {
            self.positions.resize(lane + 1, 0);
        }
        assert!(position >= self.positions[lane], "a feed never goes back");
        self.positions[lane] = position;
    }

    /// Whether this cursor is beyond the end of the log in any lane.
    pub fn is_ahead_of(&self, tail: &Self) -> bool {
        self.lanes().any(|(lane, position)| position > tail.at(lane))
    }
}

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("p")?;
        for (lane, position) in self.positions.iter().enumerate() {
            write!(f, "{}{position}", if lane == 0 { "" } else { "-" })?;
        }
        if self.positions.is_empty() {
            f.write_str("0")?;
        }
        write!(f, "{}", self.history)
    }
}

const RULE: Malformed =
    Malformed("this cursor was not issued by this server; send the last id of the stream unchanged");

impl FromStr for FeedCursor {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let (positions, history) = parted(text.strip_prefix('p').ok_or(RULE)?)?;
        let positions: Vec<i64> = positions.split('-').map(number).collect::<Option<_>>().ok_or(RULE)?;
        if positions.len() > LANES_MAX { Err(RULE) } else { Ok(Self { positions, history }) }
    }
}

/// The part before the dot and the history after it.
fn parted(text: &str) -> Result<(&str, Tag), Malformed> {
    match text.split_once('.') {
        None => Ok((text, Tag::FIRST)),
        Some((place, tag)) => Ok((place, tag.parse()?)),
    }
}

/// Digits only, no sign, no leading zero, within 63 bits: one spelling per number.
fn number(text: &str) -> Option<i64> {
    let digits = (1..=19).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let one_spelling = text == "0" || !text.starts_with('0');
    if digits && one_spelling { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cursors_have_one_spelling() {
        for bad in
            ["", "-1", "+1", "01", "1 ", "0x1", "99999999999999999999", "p", "1e3", "١", "1.", "1.00000000", "1.5"]
        {
            assert!(bad.parse::<RunCursor>().is_err(), "{bad:?}");
            assert!(format!("p{bad}").parse::<FeedCursor>().is_err(), "{bad:?}");
        }
        assert_eq!("0".parse::<RunCursor>().unwrap().seq, Seq::ZERO);
        assert_eq!("7.0000beef".parse::<RunCursor>().unwrap().to_string(), "7.0000beef");
        assert!("42".parse::<FeedCursor>().is_err());
    }

    proptest! {
        #[test]
        fn a_feed_cursor_survives_its_spelling(positions in proptest::collection::vec(0i64.., 1..5), tag in 0u32..) {
            let history = if tag % 2 == 0 { Tag::FIRST } else { Tag::from_random(tag) };
            let cursor = FeedCursor::of(positions).of_history(history);
            prop_assert_eq!(cursor.to_string().parse::<FeedCursor>().unwrap(), cursor);
        }
    }
}
