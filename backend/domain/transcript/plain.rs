//! A typed value as people can read it. Nothing is carried out and no class is made, whatever a value asks for.
//!
//! Whoever may write to a thread may have written any bytes there. So one [`Reader`] reads all of a checkpoint, and what
//! it makes of that is bounded as a whole: how deep a value goes is counted through extensions as well, and each value that
//! is made is one of those the reader may make.

pub mod packed;

use serde_json::Value;

use crate::domain::limits::{JSON_DEPTH_MAX, SAVED_VALUES_MAX};

/// Reads the values of one checkpoint.
#[derive(Debug)]
pub struct Reader {
    /// Values that may still be made.
    values: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Self { values: SAVED_VALUES_MAX }
    }
}

impl Reader {
    /// What a value of this type holds, as JSON that may say less than the value does; `None` where that is not known.
    pub fn decode(&mut self, kind: &str, bytes: &[u8]) -> Option<Value> {
        match kind {
            "json" => self.json(bytes),
            "null" => Some(Value::Null),
            "msgpack" => {
                let mut rest = bytes;
                // A value with something after it is another format.
                packed::unpack(&mut rest, &mut self.values).filter(|_| rest.is_empty())
            }
            _ => None,
        }
    }

    fn json(&mut self, bytes: &[u8]) -> Option<Value> {
        self.values = self.values.checked_sub(values_in(bytes))?;
        serde_json::from_slice(bytes).ok().filter(|value| is_flat(value, JSON_DEPTH_MAX))
    }
}

/// Whether a value has no more levels than a file, in which it stands some levels down, can be read with.
pub fn is_flat(value: &Value, levels: usize) -> bool {
    let below = |value: &Value| levels.checked_sub(1).is_some_and(|levels| is_flat(value, levels));
    match value {
        Value::Array(items) => items.iter().all(below),
        Value::Object(members) => members.values().all(below),
        _ => true,
    }
}

/// As many values as a text of JSON can hold, and not many more, counted before any of them is made.
pub fn values_in(text: &[u8]) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests;
