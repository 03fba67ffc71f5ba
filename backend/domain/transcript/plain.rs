//! Typed values as readable JSON. Nothing in a value is executed, and no class is instantiated.
//!
//! A client with write access to a thread may have stored any bytes. So one [`Reader`] reads all of a checkpoint, and
//! its output is bounded as a whole: depth is counted through extensions too, and each decoded value counts against the
//! reader's bound.

pub mod packed;

use serde_json::Value;

use crate::domain::limits::{JSON_DEPTH_MAX, SAVED_VALUES_MAX};

/// Reads the values of one checkpoint.
#[derive(Debug)]
pub struct Reader {
    /// Values that may still be decoded.
    values: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Self { values: SAVED_VALUES_MAX }
    }
}

impl Reader {
    /// Decodes a value of this type to JSON, perhaps with losses; `None` if it cannot be read.
    pub fn decode(&mut self, kind: &str, bytes: &[u8]) -> Option<Value> {
        match kind {
            "json" => self.json(bytes),
            "null" => Some(Value::Null),
            "msgpack" => {
                let mut rest = bytes;
                // Trailing bytes mean another format.
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

/// Whether a value has at most this many levels, so that a file that nests it can be read.
pub fn is_flat(value: &Value, levels: usize) -> bool {
    let below = |value: &Value| levels.checked_sub(1).is_some_and(|levels| is_flat(value, levels));
    match value {
        Value::Array(items) => items.iter().all(below),
        Value::Object(members) => members.values().all(below),
        _ => true,
    }
}

/// A close upper bound on the number of values in a JSON text, computed without decoding it.
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
