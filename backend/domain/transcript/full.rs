//! From a checkpoint to a file and back, where all of a state is plain data.
//!
//! What comes back is a checkpoint that two engines read: this program's, whose head stands in it as `runreel`, and
//! `LangGraph`'s, whose members are those of the value itself. Messages stand in the file once, so that whoever edits
//! them edits what is restored.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    SavedThread, VERSION,
    message::{check, check_shape, kept, usable},
    plain::{Reader, is_flat},
    summary::summary,
};
use crate::domain::{
    checkpoint::{self, Blob, Bytes64, Channel, Channels, Checkpoint, CheckpointId, ValueType, Version},
    event::timestamp,
    json::Json,
    limits::JSON_DEPTH_MAX,
};

/// The channel of a conversation.
const MESSAGES: &str = "messages";
/// The member with the engine's head.
const HEAD: &str = "runreel";
/// The version of `LangGraph`'s format that the members are of.
const LANGGRAPH: u32 = 4;
/// The graph of the agents that go on with messages. No other does, so a state that names another goes on with this one.
const GRAPH: &str = "assistant";

/// A state to be kept as the first checkpoint of a thread.
#[derive(Clone, Debug)]
pub struct Restored {
    pub checkpoint_id: CheckpointId,
    pub checkpoint: checkpoint::Value,
    pub step: i64,
    pub versions: Channels<Version>,
    pub blobs: Channels<Blob>,
}

/// Where a checkpoint has its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a channel of their own.
    Channel,
    /// `channel_values.messages` of the checkpoint's own value.
    ChannelValues,
    /// `messages` of the checkpoint's own value.
    Value,
}

impl Place {
    const ALL: [(Self, &str); 3] =
        [(Self::Channel, "channel"), (Self::ChannelValues, "channel_values"), (Self::Value, "value")];

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(place, name)| (place == self).then_some(name)).unwrap_or_default()
    }

    fn parse(name: &Value) -> Self {
        Self::ALL.into_iter().find_map(|(place, known)| (name == known).then_some(place)).unwrap_or(Self::Channel)
    }
}

/// What a checkpoint says of its thread.
#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    /// Everything.
    Thread(SavedThread),
    /// Everything but messages, of which it has none: the metadata of a thread.
    State(Map<String, Value>),
    /// Messages and something else that is no plain data.
    Messages(Vec<Value>),
    Nothing,
}

/// What of a checkpoint is plain data.
pub fn of_checkpoint(checkpoint: &Checkpoint) -> Held {
    let (mut reader, mut channels) = (Reader::default(), Map::new());
    let value = reader.decode(checkpoint.checkpoint.t.as_str(), &checkpoint.checkpoint.b.0);
    let mut is_whole = value.is_some();
    let mut value = value.unwrap_or_default();
    for (channel, version) in &checkpoint.versions.0 {
        let version: Value = serde_json::from_str(version.as_json()).unwrap_or_default();
        channels.insert(channel.as_str().to_owned(), json!({"version": version}));
    }
    for (channel, blob) in checkpoint.blobs.0.iter().filter(|(_, blob)| blob.t.as_str() != "empty") {
        match reader.decode(blob.t.as_str(), &blob.b.0) {
            Some(value) => channels[channel.as_str()]["value"] = value,
            None => is_whole = false,
        }
    }
    match take_messages(&mut value, &mut channels) {
        None if is_whole && value.is_object() => {
            Held::State(metadata_of(checkpoint, Place::Channel, &value, &channels))
        }
        Some((place, Value::Array(messages))) => {
            let fits = |check: fn(&Value) -> Result<(), &'static str>| messages.iter().all(|one| check(one).is_ok());
            let (goes_on, can_be_read) = (is_whole && fits(check), fits(check_shape));
            let messages: Vec<Value> = messages.into_iter().map(kept).collect();
            match (goes_on, can_be_read) {
                (true, _) => {
                    let metadata = metadata_of(checkpoint, place, &value, &channels);
                    Held::Thread(SavedThread { messages, metadata })
                }
                (false, true) => Held::Messages(messages),
                (false, false) => Held::Nothing,
            }
        }
        None | Some(_) => Held::Nothing,
    }
}

/// The rest of a checkpoint, as a file keeps it.
fn metadata_of(
    checkpoint: &Checkpoint,
    place: Place,
    value: &Value,
    channels: &Map<String, Value>,
) -> Map<String, Value> {
    let metadata: Option<Value> = serde_json::from_str(checkpoint.metadata.as_str()).ok();
    let metadata = metadata.filter(|metadata| is_flat(metadata, JSON_DEPTH_MAX));
    let state = json!({
        "thread_id": checkpoint.thread_id, "checkpoint_id": checkpoint.checkpoint_id, "metadata": metadata,
        "messages_in": place.name(), "checkpoint": value, "channels": channels,
    });
    Map::from_iter([("version".to_owned(), json!(VERSION)), ("state".to_owned(), state)])
}

/// Takes the messages out of where they are, whatever they are.
fn take_messages(value: &mut Value, channels: &mut Map<String, Value>) -> Option<(Place, Value)> {
    let of_channel = channels.get(MESSAGES).is_some_and(|channel| channel.get("value").is_some());
    let in_values = value.get("channel_values").is_some_and(|values| values.get(MESSAGES).is_some());
    let (place, holder) = if of_channel {
        (Place::Channel, channels.get_mut(MESSAGES)?.as_object_mut()?)
    } else if in_values {
        (Place::ChannelValues, value.get_mut("channel_values")?.as_object_mut()?)
    } else {
        (Place::Value, value.as_object_mut()?)
    };
    Some((place, holder.remove(if place == Place::Channel { "value" } else { MESSAGES })?))
}

impl SavedThread {
    /// The state with which a thread goes on from here: all of it, or what the summary says. `fresh` is an id nobody
    /// has, `UUIDv7`.
    pub fn restored(&self, fresh: Uuid, now: DateTime<Utc>) -> Restored {
        let nothing = Map::new();
        let state = self.metadata.get("state").and_then(Value::as_object).filter(|_| !self.is_fallback());
        let state = state.unwrap_or(&nothing);
        let messages = if self.is_fallback() {
            usable(&[json!({"role": "user", "content": summary(&self.messages)})])
        } else {
            usable(&self.messages)
        };
        let known = state.get("checkpoint_id").and_then(Value::as_str);
        // After the last of all ids no other could come, and the thread could not go on.
        let id = known.and_then(|id| Uuid::try_parse(id).ok()).filter(|id| !id.is_max()).unwrap_or(fresh);
        let mut channels: Vec<(Channel, Version, Option<Value>)> = channels_of(state, fresh);
        match channels.iter_mut().find(|(channel, ..)| channel.as_str() == MESSAGES) {
            Some((_, _, value)) => *value = Some(json!(messages)),
            None => channels.push((Channel::trusted(MESSAGES), first_version(fresh), Some(json!(messages)))),
        }
        let versions =
            Channels(channels.iter().map(|(channel, version, _)| (channel.clone(), version.clone())).collect());
        let blobs = channels.into_iter().filter_map(|(channel, version, value)| {
            Some((
                channel,
                Blob { version, t: ValueType::trusted("json"), b: Bytes64(value?.to_string().into_bytes()) },
            ))
        });
        let blobs = Channels(blobs.collect());
        let (value, step) = value_of(state, id, &versions, &messages, now);
        Restored {
            checkpoint_id: CheckpointId::trusted(&id.to_string()),
            checkpoint: checkpoint::Value { t: ValueType::trusted("json"), b: Bytes64(value.to_string().into_bytes()) },
            step,
            versions,
            blobs,
        }
    }
}

/// The channels of a kept state that can be kept again.
fn channels_of(state: &Map<String, Value>, fresh: Uuid) -> Vec<(Channel, Version, Option<Value>)> {
    let channels = state.get("channels").and_then(Value::as_object);
    let channel = |(name, channel): (&String, &Value)| {
        let version = channel.get("version").and_then(|version| serde_json::from_str(&version.to_string()).ok());
        Some((name.parse().ok()?, version.unwrap_or_else(|| first_version(fresh)), channel.get("value").cloned()))
    };
    channels.into_iter().flatten().filter_map(channel).collect()
}

/// The version of a channel's first value, as `LangGraph`'s savers count, with a tail that no other thread has.
fn first_version(fresh: Uuid) -> Version {
    let version = format!("{:032}.{}", 1, &fresh.simple().to_string()[20..]);
    serde_json::from_str(Json::of(&version).as_str()).expect("a short text is a version")
}

/// The checkpoint's own value, and how many steps were taken.
fn value_of(
    state: &Map<String, Value>,
    id: Uuid,
    versions: &Channels<Version>,
    messages: &[Value],
    now: DateTime<Utc>,
) -> (Value, i64) {
    let mut value = state.get("checkpoint").and_then(Value::as_object).cloned().unwrap_or_default();
    // This program's own checkpoints are their head and nothing else.
    let is_head = ["graph", "step", "next"].iter().all(|member| value.contains_key(*member));
    let head = if is_head { Value::Object(std::mem::take(&mut value)) } else { value.remove(HEAD).unwrap_or_default() };
    let of_metadata = state.get("metadata").and_then(|metadata| metadata["step"].as_i64());
    let step = head["step"].as_i64().or(of_metadata).unwrap_or(0).clamp(-1, i64::from(u32::MAX));
    let defaults = [
        ("v", json!(LANGGRAPH)),
        ("id", json!(id)),
        ("ts", json!(timestamp(now))),
        ("channel_values", json!({})),
        ("channel_versions", json!({})),
        ("versions_seen", json!({})),
        ("updated_channels", Value::Null),
    ];
    for (member, default) in defaults {
        value.entry(member).or_insert(default);
    }
    value.insert("id".to_owned(), json!(id));
    value.insert("channel_versions".to_owned(), json!(versions));
    value.insert(HEAD.to_owned(), json!({"v": 1, "graph": GRAPH, "step": step.max(0), "next": []}));
    match Place::parse(state.get("messages_in").unwrap_or(&Value::Null)) {
        Place::Channel => {}
        Place::Value => drop(value.insert(MESSAGES.to_owned(), json!(messages))),
        Place::ChannelValues => {
            if let Some(values) = value.get_mut("channel_values").and_then(Value::as_object_mut) {
                values.insert(MESSAGES.to_owned(), json!(messages));
            }
        }
    }
    (Value::Object(value), step)
}

#[cfg(test)]
mod tests;
