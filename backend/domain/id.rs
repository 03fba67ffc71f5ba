//! Ids, names and numbers that are valid once they exist.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::limits::{
    EXTERNAL_ID_CHARS_MAX, IMPORT_AGE_MS_MAX, KEY_CHARS_MAX, NAME_CHARS_MAX, RUN_ID_SKEW_MS_MAX, THREAD_ID_BYTES_MAX,
    TITLE_CHARS_MAX,
};

/// The rule that a value broke, as a message for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// The id of a run: UUID version 7 (RFC 9562), so ids sort by creation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct RunId(Uuid);

impl RunId {
    /// Reads back an id that was checked when it was stored.
    pub fn trusted(id: Uuid) -> Self {
        Self(id)
    }

    pub fn uuid(self) -> Uuid {
        self.0
    }

    /// The time in the id, milliseconds since the Unix epoch.
    pub fn unix_ms(self) -> i64 {
        (self.0.as_u128() >> 80) as i64
    }

    /// Whether a client may choose this id: its time must be near the present, so that ids keep sorting by time.
    pub fn is_of_today(self, now_unix_ms: i64) -> bool {
        (self.unix_ms() - now_unix_ms).abs() <= RUN_ID_SKEW_MS_MAX
    }

    /// Turns an id that is unique in this run into one that is unique across runs, as clients know calls.
    pub fn scoped(self, id: &str) -> String {
        format!("{self}/{id}")
    }

    /// Whether an import may contain this id: it may be old, but its time must be plausible.
    pub fn is_importable(self, now_unix_ms: i64) -> bool {
        (now_unix_ms - IMPORT_AGE_MS_MAX..=now_unix_ms + RUN_ID_SKEW_MS_MAX).contains(&self.unix_ms())
    }
}

impl FromStr for RunId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        const RULE: Malformed = Malformed("a run id is a UUID version 7 in its hyphenated form");
        let id = Uuid::try_parse(text).map_err(|_| RULE)?;
        let canonical = text.len() == 36 && id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122;
        if canonical { Ok(Self(id)) } else { Err(RULE) }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The number of an event in its run: 1, 2, 3 … without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seq(i64);

impl Seq {
    /// Before the first event.
    pub const ZERO: Self = Self(0);

    pub fn new(seq: i64) -> Option<Self> {
        (seq >= 0).then_some(Self(seq))
    }

    pub fn get(self) -> i64 {
        self.0
    }

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    #[must_use]
    pub fn forward(self, events: usize) -> Self {
        Self(self.0 + events as i64)
    }

    /// The seq `by` numbers away, at least 0.
    #[must_use]
    pub fn moved(self, by: i64) -> Self {
        Self((self.0 + by).max(0))
    }

    #[must_use]
    pub fn back(self, events: i64) -> Self {
        Self((self.0 - events).max(0))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Declares a checked, cheaply cloned string.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Reads back a value that was checked when it was stored.
            pub fn trusted(text: &str) -> Self {
                Self(std::sync::Arc::from(text))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::domain::id::Malformed;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) { Ok(Self(std::sync::Arc::from(text))) } else { Err($crate::domain::id::Malformed($rule)) }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use checked_text;

checked_text!(
    /// The name of an agent, channel, runner, session or tag.
    Name,
    "a name is 1 to 128 characters of any script; spaces only between them, no other blank or invisible characters",
    is_name
);
checked_text!(
    /// A thread's id, chosen by its client; it identifies a thread only together with the owner.
    ThreadId,
    "a thread id is 1 to 255 characters of A-Z a-z 0-9 . _ : @ + -",
    |text| (1..=THREAD_ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@+-".contains(&b))
);
checked_text!(
    /// A run's id in its client's system, unique per owner.
    ExternalId,
    "an external id is 1 to 255 characters without control characters, and not . or .., which no address can carry",
    |text| is_key(text, EXTERNAL_ID_CHARS_MAX) && !matches!(text, "." | "..")
);
checked_text!(
    /// Pairs `X.started` with `X.completed`: a tool call id, a step id, a message id.
    SpanId,
    "a span id is 1 to 128 characters without control characters",
    |text| is_key(text, KEY_CHARS_MAX)
);
checked_text!(
    /// A producer's id of an event; a repeated id in a run is the same event.
    EventId,
    "an event id is 1 to 128 characters without control characters",
    |text| is_key(text, KEY_CHARS_MAX)
);
checked_text!(
    /// A line of text for display: a run's title, the reason of a cancel.
    Title,
    "a title or reason is at most 512 characters without control characters",
    |text| text.chars().count() <= TITLE_CHARS_MAX && !text.chars().any(char::is_control)
);

/// A name can be read and typed again: invisible characters, and ones that reorder text, are refused.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c == ' ' || !(c.is_control() || c.is_whitespace() || is_invisible(c));
    text.len() <= NAME_CHARS_MAX * 4
        && (1..=NAME_CHARS_MAX).contains(&text.chars().count())
        && text.trim() == text
        && text.chars().all(fits)
}

/// Invisible characters that no script needs: zero-width space, word joiner, direction marks and overrides, byte order
/// mark. The joiners of Persian, Hindi and emoji are not among them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

fn is_key(text: &str, chars_max: usize) -> bool {
    !text.is_empty()
        && text.len() <= chars_max * 4
        && text.chars().count() <= chars_max
        && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_is_a_hyphenated_version_7_uuid() {
        assert!("0198c0de-0000-7000-8000-000000000001".parse::<RunId>().is_ok());
        for bad in [
            "",
            "0198c0de00007000800000000000000 1",
            "0198c0de-0000-4000-8000-000000000001",
            "0198c0de000070008000000000000001",
            "{0198c0de-0000-7000-8000-000000000001}",
            "urn:uuid:0198c0de-0000-7000-8000-000000000001",
        ] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_run_id_tells_its_millisecond() {
        let id: RunId = "0198c0de-0000-7000-8000-000000000001".parse().unwrap();
        assert_eq!(id.unix_ms(), 0x0198_c0de_0000);
        assert!(id.is_of_today(0x0198_c0de_0000 + RUN_ID_SKEW_MS_MAX));
        assert!(!id.is_of_today(0x0198_c0de_0000 + RUN_ID_SKEW_MS_MAX + 1));
    }

    #[test]
    fn a_name_is_of_any_script_and_has_nothing_that_cannot_be_seen() {
        let longest = "漢".repeat(128);
        for good in ["gpt-4o/mini", "Weather agent", "prüfung", "客服", "वेतन", "می‌خواهم", "👩‍🔬", "a  b", &longest]
        {
            assert!(good.parse::<Name>().is_ok(), "{good:?}");
        }
        let too_long = "漢".repeat(129);
        for bad in [
            "",
            " ",
            " a",
            "a ",
            "tab\t",
            "a\nb",
            "a\u{a0}b",
            "a\u{2028}b",
            "a\u{200b}",
            "\u{202e}a",
            "\u{feff}a",
            "a\0",
            &too_long,
        ] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ids_refuse_what_a_path_or_a_log_line_could_not_carry() {
        assert!("a:b@c+d-e_f.g".parse::<ThreadId>().is_ok());
        assert!("a/b".parse::<ThreadId>().is_err());
        assert!("call é 😀".parse::<SpanId>().is_ok());
        assert!("line\nbreak".parse::<SpanId>().is_err());
    }

    #[test]
    fn an_external_id_has_255_characters_of_any_script_and_no_control_characters() {
        for good in ["1", "a/b c?d#e%2F", "...", "日本語", "e\u{301}", &"😀".repeat(255)] {
            assert!(good.parse::<ExternalId>().is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", "a\0", "line\nbreak", "\u{7f}", "\u{9b}", &"x".repeat(256), &"😀".repeat(256)] {
            assert!(bad.parse::<ExternalId>().is_err(), "{bad:?}");
        }
    }
}
