//! Conversion of a checkpoint to a file and back.
//!
//! The file contains the framework's bytes beside the messages for people. The bytes are restored unchanged, except for
//! messages that were edited. Nothing else of a state is interpreted.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    SavedThread, VERSION,
    message::{as_read, check, usable},
    plain::{Reader, packed},
    summary::summary,
};
use crate::domain::{
    checkpoint::{self, Blob, Bytes64, Channel, Channels, Checkpoint, CheckpointId, ValueType, Version},
    event::timestamp,
    json::Json,
    segments,
};

/// The channel of a conversation.
const MESSAGES: &str = "messages";
/// The type of an absent value.
const NO_VALUE: &str = "empty";
/// The member of a checkpoint's metadata that names the saved session it was made from.
pub const OF_SESSION: &str = "saved_session";

/// A state to be stored as the first checkpoint of a thread.
#[derive(Clone, Debug)]
pub struct Restored {
    pub checkpoint_id: CheckpointId,
    pub checkpoint: checkpoint::Value,
    pub step: i64,
    pub versions: Channels<Version>,
    pub blobs: Channels<Blob>,
}

/// The readable content of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckpointContent {
    /// Everything.
    Thread(SavedThread),
    /// A state without messages: the metadata of a thread.
    State(Map<String, Value>),
    /// Nothing readable here.
    Nothing,
}

/// Extracts the content of a checkpoint for a saved session.
pub fn of_checkpoint(checkpoint: Checkpoint) -> CheckpointContent {
    let checkpoint = segments::joined(checkpoint, MESSAGES);
    let messages = messages_in(&checkpoint.checkpoint, &checkpoint.blobs);
    let Some(state) = serde_json::to_value(Checkpoint { writes: Vec::new(), ..checkpoint }).ok() else {
        return CheckpointContent::Nothing;
    };
    let metadata = Map::from_iter([("version".to_owned(), json!(VERSION)), ("state".to_owned(), state)]);
    match messages {
        Messages::Are(messages) => CheckpointContent::Thread(SavedThread { messages, metadata }),
        Messages::None => CheckpointContent::State(metadata),
        Messages::Unread => CheckpointContent::Nothing,
    }
}

/// The messages of a checkpoint that was restored from a saved session of any framework, in the form that this
/// program's agents read.
pub fn conversation(checkpoint: &Checkpoint) -> Option<Vec<Value>> {
    let metadata: Map<String, Value> = serde_json::from_str(checkpoint.metadata.as_str()).ok()?;
    match messages_in(&checkpoint.checkpoint, &checkpoint.blobs) {
        Messages::Are(messages) if metadata.contains_key(OF_SESSION) => Some(usable(&messages)),
        _ => None,
    }
}

/// The messages of a checkpoint.
#[derive(PartialEq)]
enum Messages {
    Are(Vec<Value>),
    None,
    Unread,
}

/// Looks for messages in the channel `messages`, else in the checkpoint's own value.
fn messages_in(value: &checkpoint::Value, blobs: &Channels<Blob>) -> Messages {
    let mut reader = Reader::default();
    let found = match blobs.0.iter().find(|blob| is_conversation(blob)) {
        Some((_, blob)) => reader.decode(blob.t.as_str(), &blob.b.0),
        None => match reader.decode(value.t.as_str(), &value.b.0).filter(Value::is_object) {
            Some(mut value) => match inside(&mut value) {
                Some(messages) => Some(messages.take()),
                None => return Messages::None,
            },
            None => None,
        },
    };
    match found {
        Some(Value::Array(messages)) if messages.iter().all(|message| check(message).is_ok()) => {
            Messages::Are(messages.into_iter().map(as_read).collect())
        }
        _ => Messages::Unread,
    }
}

fn is_conversation((channel, blob): &(Channel, Blob)) -> bool {
    channel.as_str() == MESSAGES && blob.t.as_str() != NO_VALUE
}

/// The messages in a checkpoint's own value.
fn inside(value: &mut Value) -> Option<&mut Value> {
    let of_channels = value.get("channel_values").is_some_and(|values| values.get(MESSAGES).is_some());
    if of_channels { value["channel_values"].get_mut(MESSAGES) } else { value.get_mut(MESSAGES) }
}

impl SavedThread {
    /// The state from which a thread continues: all of it, or the summary. `fresh` is an unused id, `UUIDv7`.
    pub fn restored(&self, fresh: Uuid, now: DateTime<Utc>) -> Restored {
        let mut restored = self.kept(fresh).unwrap_or_else(|| Restored {
            checkpoint_id: CheckpointId::trusted(&fresh.to_string()),
            checkpoint: checkpoint::Value { t: ValueType::trusted(NO_VALUE), b: Bytes64::default() },
            step: 0,
            versions: Channels::default(),
            blobs: Channels::default(),
        });
        let summed_up = self.is_fallback().then(|| vec![json!({"role": "user", "content": summary(&self.messages)})]);
        let messages = summed_up.as_ref().unwrap_or(&self.messages);
        let are_kept = match messages_in(&restored.checkpoint, &restored.blobs) {
            Messages::Are(kept) => kept == *messages,
            Messages::None => messages.is_empty(),
            Messages::Unread => false,
        };
        if !are_kept {
            restored.replace_messages(messages, fresh);
        }
        restored.in_the_form_of_langgraph(now);
        restored
    }

    /// The checkpoint in the file, unless edits made it invalid.
    fn kept(&self, fresh: Uuid) -> Option<Restored> {
        let state = self.metadata.get("state").filter(|_| !self.is_fallback())?;
        let kept: Checkpoint = serde_json::from_value(state.clone()).ok()?;
        // No id could follow the maximum, and the thread could not continue.
        let id = Uuid::try_parse(kept.checkpoint_id.as_str()).ok().filter(|id| !id.is_max()).unwrap_or(fresh);
        let metadata: Value = serde_json::from_str(kept.metadata.as_str()).unwrap_or_default();
        Some(Restored {
            checkpoint_id: CheckpointId::trusted(&id.to_string()),
            checkpoint: kept.checkpoint,
            step: metadata["step"].as_i64().unwrap_or(0).clamp(-1, i64::from(u32::MAX)),
            versions: kept.versions,
            blobs: kept.blobs,
        })
    }
}

/// The values of the checkpoint in a file, unchanged.
pub fn values_in(file: &[u8]) -> Vec<Vec<u8>> {
    #[derive(Deserialize)]
    struct File {
        thread: Thread,
    }
    #[derive(Deserialize)]
    struct Thread {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        state: Checkpoint,
    }
    let Ok(file) = serde_json::from_slice::<File>(file) else { return Vec::new() };
    let Checkpoint { checkpoint, blobs, .. } = file.thread.metadata.state;
    blobs.0.into_iter().map(|(_, blob)| blob.b.0).chain([checkpoint.b.0]).collect()
}

impl Restored {
    /// Writes the messages in their framework's form, in place of the old ones.
    fn replace_messages(&mut self, messages: &[Value], fresh: Uuid) {
        let replacement = json_value(&Value::Array(usable(messages)));
        if let Some((_, blob)) = self.blobs.0.iter_mut().find(|blob| is_conversation(blob)) {
            let is_packed = blob.t.as_str() == "msgpack";
            if let Some(list) = is_packed.then(|| packed::list(&blob.b.0, messages)).flatten() {
                blob.b = Bytes64(list);
            } else {
                (blob.t, blob.b) = (replacement.t, replacement.b);
            }
            return;
        }
        if let Ok(mut value) = serde_json::from_slice::<Value>(&self.checkpoint.b.0)
            && let Some(place) = inside(&mut value)
        {
            *place = Value::Array(usable(messages));
            self.checkpoint = json_value(&value);
            return;
        }
        // Like the other channels' versions, because frameworks compare them.
        let version = self.versions.0.iter().find(|(channel, _)| channel.as_str() == MESSAGES);
        let version = version.or(self.versions.0.first()).map_or_else(|| first_version(fresh), |(_, v)| v.clone());
        let channel = Channel::trusted(MESSAGES);
        self.versions.0.retain(|(other, _)| *other != channel);
        self.versions.0.push((channel.clone(), version.clone()));
        self.blobs.0.push((channel, Blob { version, t: replacement.t, b: replacement.b }));
    }

    /// Replaces the checkpoint's own value with what `LangGraph` expects, if it is this engine's private data or
    /// missing because the file was written by hand.
    fn in_the_form_of_langgraph(&mut self, now: DateTime<Utc>) {
        let value: Value = serde_json::from_slice(&self.checkpoint.b.0).unwrap_or_default();
        let is_ours = self.checkpoint.t.as_str() == NO_VALUE
            || ["graph", "step", "next"].iter().all(|member| value.get(member).is_some());
        if is_ours {
            self.checkpoint = json_value(&json!({
                "v": 4, "id": self.checkpoint_id, "ts": timestamp(now), "channel_values": {},
                "channel_versions": self.versions, "versions_seen": {}, "updated_channels": null,
            }));
        }
    }
}

/// The version of a channel's first value, numbered as `LangGraph`'s savers do, with a suffix unique to the thread.
fn first_version(fresh: Uuid) -> Version {
    let version = format!("{:032}.{}", 1, &fresh.simple().to_string()[20..]);
    serde_json::from_str(Json::of(&version).as_str()).expect("a short text is a version")
}

fn json_value(value: &Value) -> checkpoint::Value {
    checkpoint::Value { t: ValueType::trusted("json"), b: Bytes64(value.to_string().into_bytes()) }
}

#[cfg(test)]
mod tests;
