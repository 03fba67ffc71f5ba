//! JSON that others send, read as far as it can be.
//!
//! The grammar of RFC 8259 allows more than a strict reader takes: an escape of half a surrogate pair (section 8.2), which
//! programs write that cut texts by length, members that repeat (section 4), numbers of any size (section 6). A byte-order
//! mark may be ignored (section 8.1). So a value stays unread until somebody wants it, and what nobody wants cannot spoil
//! the rest. The grammar itself is `serde_json`'s.

use std::{borrow::Cow, collections::HashMap};

use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, value::RawValue};

use super::json::unit;

/// Bytes of the escape `\uXXXX`.
const ESCAPE_BYTES: usize = 6;
/// Whole numbers up to here are exact in every JSON reader (RFC 8259, section 6).
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

/// The text of bytes that should be UTF-8: without a byte-order mark, and with U+FFFD where they are not.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))
}

/// JSON text that a strict reader takes: half a surrogate pair is U+FFFD. Nothing else changes.
pub fn mended(json: &str) -> Cow<'_, str> {
    let mut mended = Cow::Borrowed(json);
    for half in lone_halves(json) {
        // An escape for an escape: every other place stays the same.
        mended.to_mut().replace_range(half.at..half.at + ESCAPE_BYTES, "\\ufffd");
    }
    mended
}

/// A value; the last of members that repeat counts. The error is that of the strict reader, which also refuses more
/// than 128 levels.
pub fn value(json: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_str(&mended(&text(json)))
}

/// An escape of half a surrogate pair without its other half.
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
                // An escape has at least two characters, so a backslash that is escaped begins no other.
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

/// A value in a peer's JSON. Its grammar was checked and nothing else, so it may be nested to any depth.
#[derive(Clone, Copy, Debug)]
pub struct Unread<'a>(&'a str);

impl<'a> Unread<'a> {
    /// `None` if this is not JSON. Bytes go through [`text`] first.
    pub fn parse(json: &'a str) -> Option<Self> {
        serde_json::from_str::<&RawValue>(json).ok().map(|raw| Self(raw.get()))
    }

    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The members of an object; of what is not an object there are none.
    pub fn members(self) -> UnreadMembers<'a> {
        let is_object = self.0.starts_with('{');
        UnreadMembers(is_object.then(|| serde_json::from_str(self.0).ok()).flatten().unwrap_or_default())
    }

    /// The items of a list; of what is not a list there are none.
    pub fn items(self) -> impl Iterator<Item = Self> + use<'a> {
        let is_list = self.0.starts_with('[');
        let items: Vec<&'a RawValue> = is_list.then(|| serde_json::from_str(self.0).ok()).flatten().unwrap_or_default();
        items.into_iter().map(|raw| Self(raw.get()))
    }

    /// `None` if it is nested deeper than 128 levels or holds a number that no reader could represent.
    pub fn value(self) -> Option<Value> {
        serde_json::from_str(&mended(self.0)).ok()
    }

    /// `None` if it is not a string.
    pub fn text(self) -> Option<String> {
        serde_json::from_str(&mended(self.0)).ok()
    }

    /// A whole number, however it is written: `1`, `1.0`, `1e0` or `"1"`.
    #[expect(clippy::cast_possible_truncation, reason = "its size is compared first")]
    pub fn whole(self) -> Option<i64> {
        let digits = self.0.trim_matches('"');
        let number: f64 = digits.parse().ok().filter(|number: &f64| number.fract() == 0.0)?;
        digits.parse().ok().or_else(|| (number.abs() <= WHOLE_MAX).then_some(number as i64))
    }
}

/// The members of an object of a peer.
#[derive(Debug, Default, Deserialize)]
pub struct UnreadMembers<'a>(#[serde(borrow)] HashMap<Name<'a>, &'a RawValue>);

impl<'a> UnreadMembers<'a> {
    /// A member; null is as good as none.
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

    /// The members of a member.
    #[must_use]
    pub fn inside(&self, name: &str) -> Self {
        self.get(name).map(Unread::members).unwrap_or_default()
    }
}

/// A member's name. It may hold half a surrogate pair, too, which `serde_json` gives as bytes only.
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

/// Joins the pieces of one text: half a surrogate pair at the end of a piece waits for the next piece.
#[derive(Debug, Default)]
pub struct Halves {
    /// The escape that waits, or nothing.
    held: String,
}

impl Halves {
    /// What the text has more now. `None` if the piece is not a string.
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

    /// What a half that still waits is, once the text has ended: U+FFFD.
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

    /// As JavaScript writes a string: halves that stand alone are escaped, and perhaps others.
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
