//! Lenient reading of JSON from peers.
//!
//! The grammar of RFC 8259 allows more than a strict reader accepts: an escape of half a surrogate pair (section 8.2),
//! which programs write that cut texts by length, repeated members (section 4), numbers of any size (section 6). A byte
//! order mark may be ignored (section 8.1). So values are parsed only on demand, and an invalid one does not affect the
//! rest. The grammar itself is checked by `serde_json`.

use std::{borrow::Cow, collections::HashMap};

use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, value::RawValue};

use super::json::unit;

/// Length of the escape `\uXXXX`, bytes.
const ESCAPE_BYTES: usize = 6;
/// Whole numbers up to here are exact in every JSON reader (RFC 8259, section 6).
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

/// Decodes bytes that should be UTF-8: drops a byte order mark and replaces invalid sequences by U+FFFD.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))
}

/// JSON text that a strict reader accepts: a lone surrogate becomes U+FFFD, nothing else changes.
pub fn mended(json: &str) -> Cow<'_, str> {
    let mut mended = Cow::Borrowed(json);
    for half in lone_halves(json) {
        // Both escapes have the same length, so the other offsets stay valid.
        mended.to_mut().replace_range(half.at..half.at + ESCAPE_BYTES, "\\ufffd");
    }
    mended
}

/// Parses a value; of repeated members the last counts. Errors are those of the strict reader, which also refuses more
/// than 128 levels.
pub fn value(json: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_str(&mended(&text(json)))
}

/// An escape of an unpaired surrogate.
struct LoneHalf {
    at: usize,
    is_high: bool,
}

fn lone_halves(json: &str) -> impl Iterator<Item = LoneHalf> {
    let bytes = json.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            at += memchr::memchr(b'\\', bytes.get(at..)?)?;
            let (here, is_high) = match unit(bytes, at) {
                Some(0xD800..=0xDBFF) if matches!(unit(bytes, at + ESCAPE_BYTES), Some(0xDC00..=0xDFFF)) => {
                    at += 2 * ESCAPE_BYTES;
                    continue;
                }
                Some(0xD800..=0xDBFF) => (at, true),
                Some(0xDC00..=0xDFFF) => (at, false),
                // An escape has at least two characters, so an escaped backslash starts no other escape.
                _ => {
                    at += 2;
                    continue;
                }
            };
            at += ESCAPE_BYTES;
            return Some(LoneHalf { at: here, is_high });
        }
    })
}

/// An unparsed value in a peer's JSON. Only its grammar was checked, so it may be nested to any depth.
#[derive(Clone, Copy, Debug)]
pub struct Unread<'a>(&'a str);

impl<'a> Unread<'a> {
    /// `None` if this is not JSON. Decode bytes with [`text`] first.
    pub fn parse(json: &'a str) -> Option<Self> {
        serde_json::from_str::<&RawValue>(json).ok().map(|raw| Self(raw.get()))
    }

    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The members of an object; empty if it is not an object.
    pub fn members(self) -> UnreadMembers<'a> {
        let is_object = self.0.starts_with('{');
        UnreadMembers(is_object.then(|| serde_json::from_str(self.0).ok()).flatten().unwrap_or_default())
    }

    /// The items of a list; empty if it is not a list.
    pub fn items(self) -> impl Iterator<Item = Self> + use<'a> {
        let is_list = self.0.starts_with('[');
        let items: Vec<&'a RawValue> = is_list.then(|| serde_json::from_str(self.0).ok()).flatten().unwrap_or_default();
        items.into_iter().map(|raw| Self(raw.get()))
    }

    /// `None` if it is nested deeper than 128 levels or contains a number that cannot be represented.
    pub fn value(self) -> Option<Value> {
        serde_json::from_str(&mended(self.0)).ok()
    }

    /// `None` if it is not a string.
    pub fn text(self) -> Option<String> {
        serde_json::from_str(&mended(self.0)).ok()
    }

    /// A whole number in any notation: `1`, `1.0`, `1e0` or `"1"`.
    #[expect(clippy::cast_possible_truncation, reason = "its size is compared first")]
    pub fn whole(self) -> Option<i64> {
        let digits = self.0.trim_matches('"');
        let number: f64 = digits.parse().ok().filter(|number: &f64| number.fract() == 0.0)?;
        digits.parse().ok().or_else(|| (number.abs() <= WHOLE_MAX).then_some(number as i64))
    }
}

/// The unparsed members of a peer's object.
#[derive(Debug, Default, Deserialize)]
pub struct UnreadMembers<'a>(#[serde(borrow)] HashMap<Name<'a>, &'a RawValue>);

impl<'a> UnreadMembers<'a> {
    /// A member; `None` if absent or null.
    pub fn get(&self, name: &str) -> Option<Unread<'a>> {
        let raw = self.0.get(&Name(Cow::Borrowed(name)))?.get();
        (raw != "null").then_some(Unread(raw))
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.text()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| name.0.as_ref())
    }

    /// The members of a member; empty if it is not an object.
    #[must_use]
    pub fn inside(&self, name: &str) -> Self {
        self.get(name).map(Unread::members).unwrap_or_default()
    }
}

/// A member's name. It may contain a lone surrogate, which `serde_json` returns only as bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_bytes<E: de::Error>(self, name: &'de [u8]) -> Result<Self::Value, E> {
                Ok(Name(String::from_utf8_lossy(name)))
            }

            fn visit_bytes<E: de::Error>(self, name: &[u8]) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(String::from_utf8_lossy(name).into_owned())))
            }
        }

        deserializer.deserialize_bytes(Visitor)
    }
}

/// Joins the pieces of one text: a high surrogate at the end of a piece is held until the next piece.
#[derive(Debug, Default)]
pub struct Halves {
    /// The held escape, or empty.
    held: String,
}

impl Halves {
    /// Adds a piece and returns the new text. `None` if the piece is not a string.
    pub fn join(&mut self, piece: Unread<'_>) -> Option<String> {
        let within = piece.0.strip_prefix('"')?.strip_suffix('"')?;
        let mut text = format!("\"{}{within}", std::mem::take(&mut self.held));
        let last = lone_halves(&text).last().filter(|half| half.is_high && half.at + ESCAPE_BYTES == text.len());
        if let Some(half) = last {
            self.held = text.split_off(half.at);
        }
        text.push('"');
        Unread(&text).text()
    }

    /// Ends the text: U+FFFD if half a pair is still held.
    pub fn end(&mut self) -> Option<char> {
        (!std::mem::take(&mut self.held).is_empty()).then_some(char::REPLACEMENT_CHARACTER)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn half_a_pair_becomes_a_replacement_and_the_text_around_it_stays() {
        for (json, expected) in [
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#""\ude00 \ud83d\ud83d\ude00""#, "\u{fffd} \u{fffd}\u{1f600}"),
            (r#""\\ud83d""#, "\\ud83d"),
            (r#""\\\uD83D\"""#, "\\\u{fffd}\""),
        ] {
            assert_eq!(value(json.as_bytes()).unwrap(), json!(expected), "{json}");
        }
        assert!(matches!(mended(r#"{"a":"\ud83d\ude00\n"}"#), Cow::Borrowed(_)));
    }

    #[test]
    fn a_byte_order_mark_and_bytes_that_are_no_utf_8_do_not_spoil_the_rest() {
        assert_eq!(value(b"\xef\xbb\xbf {\"a\": \"b\xff\"}").unwrap(), json!({"a": "b\u{fffd}"}));
    }

    #[test]
    fn only_what_is_wanted_has_to_be_readable() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        let json = format!(r#"{{"\ud83d":1,"n":1e999,"deep":{deep},"a":1,"none":null,"a":{{"b":[1,"x"]}}}}"#);
        let members = Unread::parse(&json).unwrap().members();
        assert_eq!(members.get("a").unwrap().value().unwrap(), json!({"b": [1, "x"]}), "the last one counts");
        assert!(members.get("n").unwrap().value().is_none() && members.get("deep").unwrap().value().is_none());
        assert!(members.get("none").is_none() && members.inside("n").get("b").is_none());
        let items: Vec<_> = members.inside("a").get("b").unwrap().items().filter_map(Unread::value).collect();
        assert_eq!(items, [json!(1), json!("x")]);
        assert!(Unread::parse("{\"a\":").is_none() && Unread::parse("").is_none());
    }

    #[test]
    fn whole_numbers_are_read_however_they_are_written() {
        for (json, expected) in [
            ("1", Some(1)),
            ("1.0", Some(1)),
            ("1e0", Some(1)),
            ("\"1\"", Some(1)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("1.5", None),
            ("1e999", None),
            ("\"x\"", None),
            ("[1]", None),
        ] {
            assert_eq!(Unread::parse(json).unwrap().whole(), expected, "{json}");
        }
    }

    /// Writes a string as JavaScript does: lone surrogates are escaped, and optionally all others.
    fn written(units: &[u16], escaped: bool) -> String {
        let mut out = String::from("\"");
        for unit in char::decode_utf16(units.iter().copied()) {
            match unit {
                Ok(c) if !escaped && !c.is_control() && !matches!(c, '"' | '\\') => out.push(c),
                Ok(c) => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| write!(out, "\\u{unit:04x}").unwrap()),
                Err(half) => write!(out, "\\u{:04X}", half.unpaired_surrogate()).unwrap(),
            }
        }
        out + "\""
    }

    fn units() -> impl Strategy<Value = Vec<u16>> {
        let unit = prop_oneof![
            0xD83Du16..0xD83F,
            0xDE00u16..0xDE02,
            0x5Cu16..0x5E,
            0x22u16..0x24,
            0x75u16..0x76,
            any::<u16>()
        ];
        prop::collection::vec(unit, 0..12)
    }

    proptest! {
        #[test]
        fn a_text_is_the_same_wherever_it_was_cut(pieces in prop::collection::vec((units(), any::<bool>()), 0..6)) {
            let mut halves = Halves::default();
            let (mut joined, mut whole) = (String::new(), Vec::new());
            for (units, escaped) in &pieces {
                let json = written(units, *escaped);
                joined += &halves.join(Unread::parse(&json).unwrap()).unwrap();
                whole.extend(units);
            }
            joined.extend(halves.end());
            prop_assert_eq!(halves.end(), None);
            prop_assert_eq!(joined, String::from_utf16_lossy(&whole));
        }

        #[test]
        fn what_a_strict_reader_takes_does_not_change(text in "[ \\[\\]{}:,\"a-f0-9\\\\u.\\n]{0,40}") {
            if let Ok(strict) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(value(text.as_bytes()).unwrap(), strict);
                prop_assert!(matches!(mended(&text), Cow::Borrowed(_)));
            }
        }
    }
}
