//! The file of a saved session: its contents, and the reading of files that a person wrote or edited.
//!
//! Only the messages are required. Invalid content is refused with its line, column and reason; unknown members are
//! ignored, but those of the thread's metadata are kept.

use chrono::{DateTime, Datelike as _, Utc};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Map, Value, value::RawValue};

use super::{
    SavedName, VERSION,
    message::{check, check_shape},
    plain::{is_flat, values_in},
    summary::first_message,
};
use crate::domain::{
    event::as_timestamp,
    limits::{JSON_DEPTH_MAX, SAVED_DESCRIPTION_CHARS_MAX, SAVED_FILE_BYTES_MAX, SAVED_MESSAGES_MAX, SAVED_VALUES_MAX},
};

/// Levels of a message or of the metadata: those allowed in a value of a checkpoint or event, plus those around it.
/// Deeper JSON could be written, but not read by an agent.
const LEVELS_MAX: usize = JSON_DEPTH_MAX + 8;
const TOO_DEEP: &str = "the JSON is nested too deeply";

/// A saved session, as stored in its file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SavedSession {
    pub name: SavedName,
    pub description: Option<String>,
    #[serde(serialize_with = "as_timestamp")]
    pub created_at: DateTime<Utc>,
    #[serde(serialize_with = "as_timestamp")]
    pub updated_at: DateTime<Utc>,
    pub message_count: usize,
    /// The beginning of the user's first message.
    pub first_message: Option<String>,
    pub thread: SavedThread,
}

/// The conversation itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SavedThread {
    /// Oldest first.
    pub messages: Vec<Value>,
    /// `version`, and either `fallback` or the rest of the state.
    pub metadata: Map<String, Value>,
}

impl SavedThread {
    /// A thread with only the messages from the log.
    pub fn fallback(messages: Vec<Value>) -> Self {
        let metadata = [("fallback", Value::Bool(true)), ("version", Value::from(VERSION))];
        Self { messages, metadata: metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
    }

    /// Whether it continues from a summary alone.
    pub fn is_fallback(&self) -> bool {
        is_fallback(&self.metadata)
    }
}

fn is_fallback(metadata: &Map<String, Value>) -> bool {
    metadata.get("fallback") == Some(&Value::Bool(true))
}

/// Why a file cannot be read, and the position of the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct Unreadable {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub reason: String,
}

/// The members as raw text, each parsed separately.
#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    description: Option<&'a RawValue>,
    #[serde(borrow, default)]
    created_at: Option<&'a RawValue>,
    #[serde(borrow, default)]
    updated_at: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thread: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawThread<'a> {
    #[serde(borrow, default)]
    messages: Option<&'a RawValue>,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
}

impl SavedSession {
    /// A session created at `now`.
    pub fn new(name: SavedName, description: Option<String>, thread: SavedThread, now: DateTime<Utc>) -> Self {
        let (message_count, first_message) = (thread.messages.len(), first_message(&thread.messages));
        Self { name, description, created_at: now, updated_at: now, message_count, first_message, thread }
    }

    /// The text of its file, readable and editable by people.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Reads a file called `name`. Missing times default to `modified`.
    pub fn read(name: SavedName, bytes: &[u8], modified: DateTime<Utc>) -> Result<Self, Unreadable> {
        let text = text_of(bytes)?;
        let source = Source { text };
        let raw: Raw<'_> = source.object(text, "a saved session must be a JSON object")?;
        let description: Option<String> = source.member(raw.description, "the description must be a string")?;
        let is_long = description.as_ref().is_some_and(|text| text.chars().count() > SAVED_DESCRIPTION_CHARS_MAX);
        if is_long {
            let reason = format!("the description has more than {SAVED_DESCRIPTION_CHARS_MAX} characters");
            return Err(source.refuse(raw.description.map_or(text, RawValue::get), reason));
        }
        let created_at = source.time(raw.created_at, "created_at")?;
        let updated_at = source.time(raw.updated_at, "updated_at")?;
        let Some(thread) = raw.thread else {
            return Err(source.refuse(text.trim_start(), "the member thread is missing"));
        };
        let thread = source.thread(thread)?;
        let updated_at = updated_at.or(created_at).unwrap_or(modified);
        let session = Self::new(name, description, thread, updated_at);
        Ok(Self { created_at: created_at.unwrap_or(updated_at), ..session })
    }

    /// The name stored in a file, if any.
    pub fn named(bytes: &[u8]) -> Result<Option<String>, Unreadable> {
        let text = text_of(bytes)?;
        let source = Source { text };
        let raw: Raw<'_> = source.object(text, "a saved session must be a JSON object")?;
        source.member(raw.name, "the name is a text")
    }
}

fn text_of(bytes: &[u8]) -> Result<&str, Unreadable> {
    let at_start = |reason: String| Unreadable { line: 1, column: 1, reason };
    if bytes.len() > SAVED_FILE_BYTES_MAX {
        return Err(at_start(format!("the file has more than {SAVED_FILE_BYTES_MAX} bytes")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let (line, column) = place(&before);
        Unreadable { line, column, reason: "the file is not UTF-8".to_owned() }
    })?;
    if values_in(bytes) > 2 * SAVED_VALUES_MAX {
        return Err(at_start(format!("the file holds more than {} values", 2 * SAVED_VALUES_MAX)));
    }
    // Some editors add a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() { Err(at_start("the file is empty".to_owned())) } else { Ok(text) }
}

/// The line and column after a text.
fn place(before: &str) -> (usize, usize) {
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[start..].chars().count() + 1)
}

/// A text that is parsed in parts.
struct Source<'a> {
    text: &'a str,
}

impl<'a> Source<'a> {
    /// A refusal of a part of the text, positioned at its start.
    fn refuse(&self, part: &str, reason: impl Into<String>) -> Unreadable {
        self.refuse_at(self.offset(part), reason)
    }

    fn refuse_at(&self, offset: usize, reason: impl Into<String>) -> Unreadable {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let (line, column) = place(before);
        Unreadable { line, column, reason: reason.into() }
    }

    /// The offset of a part in the text.
    fn offset(&self, part: &str) -> usize {
        part.as_ptr().addr().saturating_sub(self.text.as_ptr().addr()).min(self.text.len())
    }

    /// Parses a part of the text; `rule` is the message for valid JSON of another type.
    fn read<T: Deserialize<'a>>(&self, part: &'a str, rule: &str) -> Result<T, Unreadable> {
        serde_json::from_str(part).map_err(|error| {
            if error.is_data() && !error.to_string().contains("duplicate field") {
                return self.refuse(part.trim_start(), rule);
            }
            let start = part.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
            // Truncated JSON is reported at its last character, not on the line after it.
            let end = part.trim_end().len().saturating_sub(1);
            let mut within =
                if error.is_eof() { end } else { start + error.column().saturating_sub(1) }.min(part.len());
            while !part.is_char_boundary(within) {
                within -= 1;
            }
            self.refuse_at(self.offset(part) + within, reason_of(&error))
        })
    }

    /// As [`Self::read`], for an object: otherwise a list of its members in order would be accepted too.
    fn object<T: Deserialize<'a>>(&self, part: &'a str, rule: &str) -> Result<T, Unreadable> {
        if part.trim_start().starts_with('{') {
            return self.read(part, rule);
        }
        self.read::<IgnoredAny>(part, rule)?;
        Err(self.refuse(part.trim_start(), rule))
    }

    fn member<T: Deserialize<'a>>(&self, raw: Option<&'a RawValue>, rule: &str) -> Result<Option<T>, Unreadable> {
        raw.map(|raw| self.read(raw.get(), rule)).transpose()
    }

    fn time(&self, raw: Option<&'a RawValue>, member: &str) -> Result<Option<DateTime<Utc>>, Unreadable> {
        let rule = format!("{member} must be a time such as \"2026-06-01T10:00:00Z\"");
        let Some(text) = self.member::<String>(raw, &rule)? else { return Ok(None) };
        match DateTime::parse_from_rfc3339(&text) {
            // The year must have four digits in UTC too.
            Ok(time) if (0..=9_999).contains(&time.to_utc().year()) => Ok(Some(time.to_utc())),
            _ => Err(self.refuse(raw.map_or(self.text, RawValue::get), rule)),
        }
    }

    fn thread(&self, raw: &'a RawValue) -> Result<SavedThread, Unreadable> {
        let thread: RawThread<'a> = self.object(raw.get(), "thread must be an object")?;
        let metadata: Option<Map<String, Value>> =
            self.member(thread.metadata, "the metadata of a thread must be an object")?;
        let metadata = metadata.unwrap_or_default();
        if !metadata.values().all(|value| is_flat(value, LEVELS_MAX)) {
            return Err(self.refuse(thread.metadata.map_or("", RawValue::get), TOO_DEEP));
        }
        let listed: Option<Vec<&'a RawValue>> =
            self.member(thread.messages, "the messages of a thread must be a list")?;
        let Some(listed) = listed else { return Err(self.refuse(raw.get(), "the member messages is missing")) };
        if listed.len() > SAVED_MESSAGES_MAX {
            return Err(self.refuse(raw.get(), format!("the thread has more than {SAVED_MESSAGES_MAX} messages")));
        }
        let is_fallback = is_fallback(&metadata);
        let mut messages = Vec::with_capacity(listed.len());
        for (n, raw) in listed.into_iter().enumerate() {
            let message: Value = self.read(raw.get(), "a message must be an object")?;
            let checked = if is_fallback { check_shape(&message) } else { check(&message) };
            let checked = checked.and_then(|()| if is_flat(&message, LEVELS_MAX) { Ok(()) } else { Err(TOO_DEEP) });
            checked.map_err(|rule| self.refuse(raw.get(), format!("message {}: {rule}", n + 1)))?;
            messages.push(message);
        }
        Ok(SavedThread { messages, metadata })
    }
}

/// A parser's error in plain words, without its position.
fn reason_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    if error.is_eof() {
        return "the file ends in the middle of its JSON".to_owned();
    }
    match what {
        "control character (\\u0000-\\u001F) found while parsing a string" => {
            "a string contains a line break or another control character; write it as \\n".to_owned()
        }
        "key must be a string" => "a member name must be in double quotes".to_owned(),
        "trailing comma" => "trailing comma".to_owned(),
        "recursion limit exceeded" => TOO_DEEP.to_owned(),
        what => format!("not valid JSON: {what}"),
    }
}

#[cfg(test)]
mod tests;
