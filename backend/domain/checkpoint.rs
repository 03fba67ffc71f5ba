//! Checkpoints: a thread's state, stored as opaque values.
//!
//! A framework's serialiser gives every value a type name and bytes, which are not interpreted here. Only their
//! relations are known: the parent of a checkpoint, the version of each channel's value, the writes of its tasks.

use std::{collections::HashSet, fmt, marker::PhantomData};

use base64::{Engine as _, display::Base64Display, engine::general_purpose::STANDARD};
use chrono::{DateTime, Utc};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
    ser::SerializeMap as _,
};
use serde_json::value::RawValue;

use super::{
    event::as_timestamp,
    id::{ThreadId, checked_text},
    json::Json,
    limits::{
        CHANNEL_BYTES_MAX, CHECKPOINT_ID_BYTES_MAX, NAMESPACE_BYTES_MAX, VALUE_TYPE_BYTES_MAX, VERSION_BYTES_MAX,
    },
};

checked_text!(
    /// A checkpoint's id, given by its framework. Ids sort as text; the greatest is the newest.
    CheckpointId,
    "a checkpoint id is 1 to 128 visible ASCII characters, and not the word latest",
    |text| text != "latest"
        && (1..=CHECKPOINT_ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic())
);
checked_text!(
    /// Which graph of a thread a checkpoint belongs to; empty for the root.
    Namespace,
    "a namespace is at most 1024 bytes without control characters",
    |text| is_line(text, NAMESPACE_BYTES_MAX)
);
checked_text!(
    /// A task of a checkpoint, the maker of pending writes.
    TaskId,
    "a task id is 1 to 128 bytes without control characters",
    |text| !text.is_empty() && is_line(text, CHECKPOINT_ID_BYTES_MAX)
);
checked_text!(
    /// The place of a task in its graph; orders pending writes.
    TaskPath,
    "a task path is at most 1024 bytes without control characters",
    |text| is_line(text, NAMESPACE_BYTES_MAX)
);
checked_text!(
    /// A named part of a state.
    Channel,
    "a channel is 1 to 512 bytes without control characters",
    |text| !text.is_empty() && is_line(text, CHANNEL_BYTES_MAX)
);
checked_text!(
    /// The run that created a checkpoint; a framework's run need not exist on this server.
    MadeBy,
    "a run id of a checkpoint is 1 to 128 bytes without control characters",
    |text| !text.is_empty() && is_line(text, CHECKPOINT_ID_BYTES_MAX)
);
checked_text!(
    /// The kind of a value, as its serialiser names it.
    ValueType,
    "a type is 1 to 64 visible ASCII characters",
    |text| (1..=VALUE_TYPE_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
);

impl Default for Namespace {
    fn default() -> Self {
        Self::trusted("")
    }
}

impl Default for TaskPath {
    fn default() -> Self {
        Self::trusted("")
    }
}

fn is_line(text: &str, bytes_max: usize) -> bool {
    text.len() <= bytes_max && !text.chars().any(char::is_control)
}

/// Bytes, serialised as base64 (RFC 4648, section 4, padded).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes64(pub Vec<u8>);

impl Serialize for Bytes64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Encoded while it is written, so that a large value is not in memory a third time.
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

impl<'de> Deserialize<'de> for Bytes64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(Self).map_err(|_| de::Error::custom("b is not base64 with padding"))
    }
}

/// A typed opaque value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// What its serialiser calls its kind; 1–64 visible ASCII characters.
    #[schema(value_type = String)]
    pub t: ValueType,
    /// Base64; absent for no bytes.
    #[serde(default)]
    #[schema(value_type = String)]
    pub b: Bytes64,
}

/// The version of a channel's value: a string or a number. 3 and `"3"` are different versions, and so are 1 and 1.0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(Box<str>);

impl Version {
    /// As JSON: what the table stores.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let is_number = raw.get().starts_with(|c: char| c.is_ascii_digit() || c == '-');
        if is_number && raw.get().len() <= VERSION_BYTES_MAX {
            return Ok(Self(Box::from(raw.get())));
        }
        match serde_json::from_str::<String>(raw.get()) {
            // Encoded again, so that a string is the same version with any escapes.
            Ok(text) if is_line(&text, VERSION_BYTES_MAX) => Ok(Self(Json::of(&text).as_str().into())),
            _ => Err(de::Error::custom("a version is a number or a string of at most 128 bytes")),
        }
    }
}

/// One value per channel, in the order received. Duplicate channels are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channels<T>(pub Vec<(Channel, T)>);

impl<T> Default for Channels<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Serialize> Serialize for Channels<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (channel, value) in &self.0 {
            map.serialize_entry(channel, value)?;
        }
        map.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Channels<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Channels<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a member per channel")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut entries, mut seen) = (Vec::new(), HashSet::new());
                while let Some((channel, value)) = map.next_entry::<Channel, T>()? {
                    if !seen.insert(channel.clone()) {
                        return Err(de::Error::custom(format!("the channel {channel} is named twice")));
                    }
                    entries.push((channel, value));
                }
                Ok(Channels(entries))
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// A channel's value at a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Blob {
    /// A string or a number.
    #[schema(value_type = serde_json::Value)]
    pub version: Version,
    #[schema(value_type = String)]
    pub t: ValueType,
    #[serde(default)]
    #[schema(value_type = String)]
    pub b: Bytes64,
}

/// A write of a task of a checkpoint, identified by `(task_id, idx)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Write {
    #[schema(value_type = String)]
    pub task_id: TaskId,
    #[schema(value_type = String)]
    pub task_path: TaskPath,
    pub idx: i32,
    #[schema(value_type = String)]
    pub channel: Channel,
    #[schema(value_type = String)]
    pub t: ValueType,
    #[schema(value_type = String)]
    pub b: Bytes64,
}

/// A checkpoint with its channels' values and pending writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Checkpoint {
    #[schema(value_type = String)]
    pub thread_id: ThreadId,
    #[schema(value_type = String)]
    pub ns: Namespace,
    #[schema(value_type = String)]
    pub checkpoint_id: CheckpointId,
    #[schema(value_type = Option<String>)]
    pub parent_id: Option<CheckpointId>,
    #[schema(value_type = Option<String>)]
    pub run_id: Option<MadeBy>,
    pub checkpoint: Value,
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub metadata: Json,
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub versions: Channels<Version>,
    #[schema(value_type = std::collections::HashMap<String, Blob>)]
    pub blobs: Channels<Blob>,
    /// In the order of (`task_path`, `task_id`, `idx`).
    pub writes: Vec<Write>,
    #[serde(serialize_with = "as_timestamp")]
    #[schema(value_type = String)]
    pub created_at: DateTime<Utc>,
}

impl Checkpoint {
    /// Approximate size of its values in bytes.
    pub fn bytes(&self) -> usize {
        let blobs: usize = self.blobs.0.iter().map(|(_, blob)| blob.b.0.len()).sum();
        let writes: usize = self.writes.iter().map(|write| write.b.0.len()).sum();
        self.checkpoint.b.0.len() + self.metadata.as_str().len() + blobs + writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_string_or_the_number_as_it_was_spelled() {
        let text = r#"{"a":3,"b":"3","c":1.50,"d":-1e400,"e":"\u00e9"}"#;
        let versions: Channels<Version> = serde_json::from_str(text).unwrap();
        let spelled: Vec<&str> = versions.0.iter().map(|(_, version)| version.as_json()).collect();
        assert_eq!(spelled, ["3", "\"3\"", "1.50", "-1e400", "\"é\""]);
        assert_eq!(serde_json::to_string(&versions).unwrap(), r#"{"a":3,"b":"3","c":1.50,"d":-1e400,"e":"é"}"#);
    }

    #[test]
    fn what_is_not_a_version_is_refused() {
        for bad in ["null", "true", "[1]", "{}", r#""\u0000""#, r#""\ud800""#, &format!("\"{}\"", "x".repeat(129))] {
            assert!(serde_json::from_str::<Version>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_channel_named_twice_is_refused() {
        assert!(serde_json::from_str::<Channels<Version>>(r#"{"a":1,"a":2}"#).is_err());
    }

    #[test]
    fn a_value_may_leave_its_bytes_out_and_takes_only_padded_base64() {
        let empty: Value = serde_json::from_str(r#"{"t":"empty"}"#).unwrap();
        assert!(empty.b.0.is_empty());
        assert!(serde_json::from_str::<Value>(r#"{"t":"x","b":"YQ"}"#).is_err());
        assert!(serde_json::from_str::<Value>(r#"{"t":"x","b":"YQ=="}"#).is_ok());
        assert!(serde_json::from_str::<Value>(r#"{"t":"","b":"YQ=="}"#).is_err());
    }
}
