//! A client's JSON, checked once and kept as it was written.
//!
//! Nothing between the client and a reader may reorder keys or rewrite numbers, so a value is kept as text, not parsed
//! into a tree. Only white space between tokens is removed (an event is one line on the wire). A value that some reader
//! could not represent is refused: `\u0000`, a lone surrogate, or too much nesting.

use std::{borrow::Cow, collections::HashMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::limits::JSON_DEPTH_MAX;

/// Compact, valid JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Box<str>);

/// Why a JSON value was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJson {
    #[error("this is not valid JSON")]
    Syntax,
    #[error("the value is nested deeper than {JSON_DEPTH_MAX} levels")]
    Depth,
    #[error("the escape \\u0000 is not allowed in strings")]
    Nul,
    #[error("a surrogate escape in a string is unpaired")]
    LoneSurrogate,
}

impl Json {
    /// Checks and compacts JSON text.
    pub fn parse(text: &str) -> Result<Self, InvalidJson> {
        let compact = compact(text)?;
        let value: Box<RawValue> = serde_json::from_str(&compact).map_err(|_| InvalidJson::Syntax)?;
        Ok(Self(Box::from(value.get())))
    }

    /// Text from the database, which was checked when it was written.
    pub fn trusted(text: String) -> Self {
        Self(text.into_boxed_str())
    }

    /// The JSON of a value from this program. A NUL in it, perhaps from a tool or a model, becomes U+FFFD.
    pub fn of(value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        Self(without_nul(text).into_boxed_str())
    }

    /// `{}`
    pub fn empty() -> Self {
        Self(Box::from("{}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Borrows it as a slice.
    pub fn slice(&self) -> JsonSlice<'_> {
        JsonSlice(&self.0)
    }

    /// A member of an object, deserialised; `None` if absent, null or of another shape.
    pub fn member<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        self.slice().member(name)
    }

    /// A member of an object as it was sent; `None` if absent or null.
    pub fn raw_member(&self, name: &str) -> Option<Self> {
        self.members().raw(name)
    }

    /// The members of an object, to read several; empty if it is not an object.
    pub fn members(&self) -> Members<'_> {
        self.slice().members()
    }
}

/// JSON text borrowed from a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonSlice<'a>(&'a str);

impl<'a> JsonSlice<'a> {
    /// A part of text that was checked when it was written.
    pub fn trusted(text: &'a str) -> Self {
        Self(text)
    }

    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// As [`Json::member`].
    pub fn member<T: for<'de> Deserialize<'de>>(self, name: &str) -> Option<T> {
        self.members().read(name)
    }

    /// As [`Json::members`].
    pub fn members(self) -> Members<'a> {
        Members(serde_json::from_str(self.0).unwrap_or_default())
    }
}

/// The members of an object, as raw text.
#[derive(Debug)]
pub struct Members<'a>(HashMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Members<'a> {
    /// As [`Json::member`].
    pub fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    /// As [`Json::raw_member`].
    pub fn raw(&self, name: &str) -> Option<Json> {
        self.slice(name).map(|slice| Json(Box::from(slice.0)))
    }

    /// As [`Json::raw_member`], borrowed from the object.
    pub fn slice(&self, name: &str) -> Option<JsonSlice<'a>> {
        self.0.get(name).map(|raw| raw.get()).filter(|raw| *raw != "null").map(JsonSlice)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.slice().serialize(serializer)
    }
}

impl fmt::Display for JsonSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Serialize for JsonSlice<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        compact(raw.get()).map(|text| Self(text.into_boxed_str())).map_err(serde::de::Error::custom)
    }
}

/// Replaces the escape of NUL, which Postgres cannot store as text.
fn without_nul(text: String) -> String {
    const NUL: &str = "\\u0000";
    if !text.contains(NUL) {
        return text;
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some(at) = rest.find('\\') {
        // An escape has at least two characters, so an escaped backslash starts no other escape.
        let is_nul = rest[at..].starts_with(NUL);
        let end = at + if is_nul { NUL.len() } else { 2 };
        out.push_str(if is_nul { &rest[..at] } else { &rest[..end] });
        if is_nul {
            out.push(char::REPLACEMENT_CHARACTER);
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Removes white space outside strings and checks depth and escapes; the grammar itself is left to the parser.
fn compact(text: &str) -> Result<String, InvalidJson> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let (mut depth, mut at) = (0usize, 0usize);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let end = string_end(bytes, at)?;
                out.extend_from_slice(&bytes[at..end]);
                at = end;
                continue;
            }
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return Err(InvalidJson::Depth);
                }
                out.push(byte);
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                out.push(byte);
            }
            b',' | b':' => out.push(byte),
            _ => {
                // "1 2" must not become "12": bare tokens stay apart, so that the parser still refuses them.
                let gap = at > 0 && bytes[at - 1].is_ascii_whitespace();
                if gap && out.last().is_some_and(u8::is_ascii_alphanumeric) {
                    out.push(b' ');
                }
                out.push(byte);
            }
        }
        at += 1;
    }
    String::from_utf8(out).map_err(|_| InvalidJson::Syntax)
}

/// Finds the byte after a string's closing quote; `start` is its opening quote.
fn string_end(bytes: &[u8], start: usize) -> Result<usize, InvalidJson> {
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            None => return Err(InvalidJson::Syntax),
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') if bytes.get(at + 1) == Some(&b'u') => {
                at = match unit(bytes, at).ok_or(InvalidJson::Syntax)? {
                    0 => return Err(InvalidJson::Nul),
                    0xD800..=0xDBFF => match unit(bytes, at + 6) {
                        Some(0xDC00..=0xDFFF) => at + 12,
                        _ => return Err(InvalidJson::LoneSurrogate),
                    },
                    0xDC00..=0xDFFF => return Err(InvalidJson::LoneSurrogate),
                    _ => at + 6,
                };
            }
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

/// The UTF-16 code unit of the escape `\uXXXX` that starts at `at`.
pub(super) fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(input: &str, expected: Result<&str, InvalidJson>) {
        assert_eq!(Json::parse(input).as_ref().map(Json::as_str), expected.as_ref().copied(), "{input}");
    }

    #[test]
    fn white_space_goes_and_everything_else_stays_to_the_letter() {
        check("{ \"b\" : 1.50,\n\t\"a\": [ 1e3 , \"x y\\n\" ] }", Ok("{\"b\":1.50,\"a\":[1e3,\"x y\\n\"]}"));
        check("{\"a\":1,\"a\":2}", Ok("{\"a\":1,\"a\":2}"));
        check("\"\\uD83D\\uDE00 \u{2028}\"", Ok("\"\\uD83D\\uDE00 \u{2028}\""));
    }

    #[test]
    fn what_no_reader_could_carry_is_refused() {
        check("\"\\u0000\"", Err(InvalidJson::Nul));
        check("\"\\ud800\"", Err(InvalidJson::LoneSurrogate));
        check("\"\\ud800\\ud800\"", Err(InvalidJson::LoneSurrogate));
        check("\"\\udc00\"", Err(InvalidJson::LoneSurrogate));
        check(&"[".repeat(JSON_DEPTH_MAX + 1), Err(InvalidJson::Depth));
    }

    #[test]
    fn what_is_not_json_stays_not_json() {
        for text in ["", "1 2", "tru e", "{\"a\":}", "[1,]", "nul", "\"a", "\"\\u12\"", "01", "\u{feff}1", "1\u{0}"] {
            check(text, Err(InvalidJson::Syntax));
        }
    }

    #[test]
    fn a_nul_that_the_program_was_told_is_replaced_and_nothing_else_is() {
        let of = |text: &str| serde_json::from_str::<serde_json::Value>(Json::of(&text).as_str()).unwrap();
        for text in ["a\0b", "\0\0", "\\\0", "\\u0000", "\\\\u0000\0", "\\", "\"\\n\0", ""] {
            assert_eq!(of(text), text.replace('\0', "\u{fffd}"), "{text:?}");
            assert!(Json::parse(Json::of(&text).as_str()).is_ok(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn compacting_keeps_the_value_and_is_stable(text in "[ \\[\\]{}:,\"a-f0-9\\\\u.\\n]{0,40}") {
            let ours = Json::parse(&text);
            if let Ok(json) = &ours {
                let before: serde_json::Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(serde_json::from_str::<serde_json::Value>(json.as_str()).unwrap(), before);
                prop_assert!(!json.as_str().contains('\n'));
                prop_assert_eq!(Json::parse(json.as_str()).unwrap(), json.clone());
            } else if !text.contains("\\u") {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_err());
            }
        }
    }
}
