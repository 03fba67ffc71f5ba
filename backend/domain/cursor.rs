//! Where a reader stands: in one run a [`Seq`], in a feed of many runs a [`FeedCursor`].
//!
//! A feed has one strictly increasing position per writer lane, given out in commit order under the lane's row lock.
//! A reader's place is therefore a small vector, lane → position. On the wire it is opaque and starts with `p`.

use std::{fmt, str::FromStr};

use super::id::{Malformed, Seq};

/// Most lanes a database may have; a feed cursor holds one number for each.
pub const LANES_MAX: usize = 16;

/// How far a feed's reader has come in each lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FeedCursor(Vec<i64>);

impl FeedCursor {
    pub fn start() -> Self {
        Self::default()
    }

    pub fn of(positions: Vec<i64>) -> Self {
        Self(positions)
    }

    /// The last position seen in a lane; 0 before the first.
    pub fn at(&self, lane: u8) -> i64 {
        self.0.get(usize::from(lane)).copied().unwrap_or(0)
    }

    /// Every lane with its position.
    pub fn lanes(&self) -> impl Iterator<Item = (u8, i64)> {
        self.0.iter().zip(0u8..).map(|(position, lane)| (lane, *position))
    }

    /// Notes that everything up to `position` in `lane` was seen.
    pub fn advance(&mut self, lane: u8, position: i64) {
        let lane = usize::from(lane);
        if self.0.len() <= lane {
            self.0.resize(lane + 1, 0);
        }
        assert!(position >= self.0[lane], "a feed never goes back");
        self.0[lane] = position;
    }

    /// Whether this cursor claims to have seen more than there is.
    pub fn is_ahead_of(&self, tail: &Self) -> bool {
        (0..self.0.len()).any(|lane| self.0[lane] > tail.0.get(lane).copied().unwrap_or(0))
    }
}

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("p")?;
        for (lane, position) in self.0.iter().enumerate() {
            write!(f, "{}{position}", if lane == 0 { "" } else { "-" })?;
        }
        if self.0.is_empty() { f.write_str("0") } else { Ok(()) }
    }
}

const RULE: Malformed =
    Malformed("this cursor was not made by this server; send back the last id of the stream as it was");

impl FromStr for FeedCursor {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let positions: Vec<i64> =
            text.strip_prefix('p').ok_or(RULE)?.split('-').map(number).collect::<Option<_>>().ok_or(RULE)?;
        if positions.len() > LANES_MAX { Err(RULE) } else { Ok(Self(positions)) }
    }
}

/// Reads a run cursor: the plain decimal number of the last event seen.
pub fn parse_seq(text: &str) -> Result<Seq, Malformed> {
    number(text).and_then(Seq::new).ok_or(Malformed("a run's cursor is the seq of the last event seen, a plain number"))
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
        for bad in ["", "-1", "+1", "01", "1 ", "0x1", "99999999999999999999", "p", "1e3", "١"] {
            assert!(parse_seq(bad).is_err(), "{bad:?}");
            assert!(format!("p{bad}").parse::<FeedCursor>().is_err(), "{bad:?}");
        }
        assert_eq!(parse_seq("0").unwrap(), Seq::ZERO);
        assert!("42".parse::<FeedCursor>().is_err());
    }

    proptest! {
        #[test]
        fn a_feed_cursor_survives_its_spelling(positions in proptest::collection::vec(0i64.., 1..5)) {
            let cursor = FeedCursor::of(positions);
            prop_assert_eq!(cursor.to_string().parse::<FeedCursor>().unwrap(), cursor);
        }
    }
}
