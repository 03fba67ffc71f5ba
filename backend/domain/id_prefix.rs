//! A prefix of a run id, as a person types it.

use std::{fmt, str::FromStr};

use uuid::Uuid;

use super::{id::Malformed, limits::RUN_ID_DIGITS_MIN};

/// Hexadecimal digits in a UUID.
const DIGITS: usize = 32;

/// The first 4 to 32 hexadecimal digits of a run id, with or without hyphens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunIdPrefix {
    first: Uuid,
    digits: u8,
}

impl RunIdPrefix {
    /// The smallest id with this prefix.
    pub fn first(self) -> Uuid {
        self.first
    }

    /// The largest id with this prefix.
    pub fn last(self) -> Uuid {
        let free = u128::MAX.checked_shr(4 * u32::from(self.digits)).unwrap_or_default();
        Uuid::from_u128(self.first.as_u128() | free)
    }
}

impl FromStr for RunIdPrefix {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        const RULE: Malformed =
            Malformed("the beginning of a run id is 4 to 32 hexadecimal digits, with or without its hyphens");
        // Hyphens may be omitted, but not misplaced.
        let is_in_place = |(at, byte): (usize, u8)| byte != b'-' || matches!(at, 8 | 13 | 18 | 23);
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let fits = text.bytes().enumerate().all(is_in_place) && (RUN_ID_DIGITS_MIN..=DIGITS).contains(&digits.len());
        if !fits || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(RULE);
        }
        let first = u128::from_str_radix(&format!("{digits:0<DIGITS$}"), 16).map_err(|_| RULE)?;
        Ok(Self { first: Uuid::from_u128(first), digits: u8::try_from(digits.len()).map_err(|_| RULE)? })
    }
}

impl fmt::Display for RunIdPrefix {
    /// Hyphenated like an id.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hyphens = [8, 12, 16, 20].iter().filter(|at| self.digits > **at).count();
        f.write_str(&self.first.hyphenated().to_string()[..usize::from(self.digits) + hyphens])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_range_of_the_ids_that_begin_with_it() {
        let whole = "0198c0de-0000-7000-8000-000000000001";
        for digits in 4..=32 {
            let bare = whole.replace('-', "");
            let prefix: RunIdPrefix = bare[..digits].parse().unwrap();
            assert!(whole.starts_with(&prefix.to_string()), "{prefix}");
            assert_eq!(prefix.to_string().parse(), Ok(prefix));
            let (first, last) = (prefix.first().simple().to_string(), prefix.last().simple().to_string());
            assert_eq!(first, format!("{:0<32}", &bare[..digits]));
            assert_eq!(last, format!("{:f<32}", &bare[..digits]));
        }
        assert_eq!("0198C0DE-".parse::<RunIdPrefix>().unwrap().to_string(), "0198c0de");
    }

    #[test]
    fn what_begins_no_id_is_refused() {
        let too_long = "0".repeat(33);
        for bad in ["", "019", "01-98", "0198c0dg", "last", "0198c0de--0000", "-0198", "é198", " 0198", &too_long] {
            assert!(bad.parse::<RunIdPrefix>().is_err(), "{bad}");
        }
    }
}
