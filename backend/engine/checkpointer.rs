//! Encodes a graph's state as a checkpoint of the run's thread, and decodes it.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{State, context::Memoized};
use crate::{
    domain::{
        checkpoint::{
            self, Blob, Bytes64, Channel, Channels, Checkpoint, CheckpointId, MadeBy, Namespace, TaskPath, ValueType,
            Version,
        },
        id::RunId,
        json::Json,
        limits::CHECKPOINT_BODY_BYTES_MAX,
        segments,
        transcript::full::conversation,
    },
    emitters::host::HostError,
    store::checkpoints::{NewCheckpoint, NewWrites},
};

/// The error for a state that can never be saved or read.
pub(super) fn unfit(reason: impl std::fmt::Display) -> HostError {
    HostError::refused(reason).because("the run's state could not be saved or read")
}

/// A node's update or a memoized value of the current step, as a write of the checkpoint.
pub(super) fn memo(at: &CheckpointId, node: &str, key: &str, value: &Value) -> Result<NewWrites, HostError> {
    Ok(NewWrites {
        ns: Namespace::default(),
        checkpoint_id: at.clone(),
        task_id: format!("{node}/{key}").parse().map_err(unfit)?,
        task_path: TaskPath::default(),
        upsert: false,
        writes: vec![(0, Channel::trusted(MEMO), json_value(value))],
    })
}

/// The channel of memoized values.
const MEMO: &str = "memo";
/// The format version, stored in the checkpoint's own value.
const FORMAT: u32 = 1;

/// The position of a graph between two steps.
#[derive(Clone, Debug)]
pub(super) struct Snapshot<S> {
    pub run_id: RunId,
    pub graph: String,
    /// Completed steps.
    pub step: u32,
    /// The nodes of the next step; empty when the graph has ended.
    pub next: Vec<String>,
    /// The node of the last step, if it ran alone, and how long it took: its end is emitted with this checkpoint.
    pub ended: Option<(String, Duration)>,
    pub state: S,
}

/// The value of the checkpoint itself.
#[derive(Serialize, Deserialize)]
struct Head {
    v: u32,
    graph: String,
    step: u32,
    next: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<(String, Duration)>,
}

/// Per channel of the last checkpoint: the checkpoint that introduced the value, and the value as JSON.
pub(super) type StoredValues = BTreeMap<String, (CheckpointId, String)>;

/// A decoded checkpoint.
pub(super) struct Read<S> {
    /// The run that made it; `None` for a restored session or a foreign id.
    pub run_id: Option<RunId>,
    pub graph: String,
    pub step: u32,
    pub next: Vec<String>,
    pub ended: Option<(String, Duration)>,
    pub state: S,
    pub kept: StoredValues,
    pub memos: Memoized,
}

/// Encodes a snapshot. Only channels that changed since `kept` carry their values.
pub(super) fn encode<S: State>(
    snapshot: &Snapshot<S>,
    checkpoint_id: CheckpointId,
    parent_id: Option<CheckpointId>,
    kept: &StoredValues,
) -> Result<(NewCheckpoint, StoredValues), HostError> {
    let Value::Object(members) = serde_json::to_value(&snapshot.state).map_err(unfit)? else {
        return Err(unfit("a state must serialise as an object"));
    };
    let (mut now, mut versions, mut blobs, mut bytes) = (StoredValues::new(), Vec::new(), Vec::new(), 0);
    for (name, text) in members.into_iter().flat_map(|(name, value)| channels::<S>(name, value)) {
        let channel: Channel = name.parse().map_err(unfit)?;
        bytes += text.len();
        let since = kept.get(&name).filter(|(_, before)| *before == text).map(|(since, _)| since.clone());
        let is_new = since.is_none();
        let since = since.unwrap_or_else(|| checkpoint_id.clone());
        let version = version(&since)?;
        if is_new {
            let b = Bytes64(text.clone().into_bytes());
            blobs.push((channel.clone(), Blob { version: version.clone(), t: ValueType::trusted("json"), b }));
        }
        versions.push((channel, version));
        now.insert(name, (since, text));
    }
    if bytes > CHECKPOINT_BODY_BYTES_MAX {
        return Err(unfit(format!("it has {bytes} bytes of at most {CHECKPOINT_BODY_BYTES_MAX}")));
    }
    let Snapshot { run_id, graph, step, next, ended, .. } = snapshot;
    let head = Head { v: FORMAT, graph: graph.clone(), step: *step, next: next.clone(), ended: ended.clone() };
    let new = NewCheckpoint {
        ns: Namespace::default(),
        checkpoint_id,
        parent_id,
        run_id: Some(MadeBy::trusted(&run_id.to_string())),
        checkpoint: json_value(&serde_json::to_value(&head).map_err(unfit)?),
        metadata: Json::of(&json!({"source": "graph", "graph": graph, "step": step})),
        versions: Channels(versions),
        blobs: Channels(blobs),
    };
    Ok((new, now))
}

/// The channels of one member of the state, each with its value as JSON.
fn channels<S: State>(name: String, value: Value) -> Vec<(String, String)> {
    match value {
        Value::Array(items) if S::APPENDED.contains(&name.as_str()) => {
            let segments = segments::split(&items).into_iter().enumerate();
            segments.map(|(segment, text)| (segments::channel(&name, segment), text)).collect()
        }
        value => vec![(name, value.to_string())],
    }
}

/// Decodes what [`encode`] made, or a restored session; `None` for another program's checkpoint, or one whose state no
/// longer fits.
pub(super) fn decode<S: State>(checkpoint: &Checkpoint) -> Option<Read<S>> {
    own(checkpoint).or_else(|| of_session(checkpoint))
}

fn own<S: State>(checkpoint: &Checkpoint) -> Option<Read<S>> {
    if checkpoint.checkpoint.t.as_str() != "json" {
        return None;
    }
    let head: Head = serde_json::from_slice(&checkpoint.checkpoint.b.0).ok().filter(|head: &Head| head.v == FORMAT)?;
    let (mut members, mut kept) = (serde_json::Map::new(), StoredValues::new());
    let mut lists: BTreeMap<&str, Vec<(usize, Value)>> = BTreeMap::new();
    for (channel, blob) in &checkpoint.blobs.0 {
        let text = String::from_utf8(blob.b.0.clone()).ok().filter(|_| blob.t.as_str() == "json")?;
        let (name, value) = (channel.as_str(), serde_json::from_str(&text).ok()?);
        match S::APPENDED.iter().find_map(|list| Some((*list, segments::segment(list, name)?))) {
            Some((list, segment)) => lists.entry(list).or_default().push((segment, value)),
            None => _ = members.insert(name.to_owned(), value),
        }
        // A value with a version in another format is stored again in the next step.
        if let Ok(since) = serde_json::from_str::<String>(blob.version.as_json()) {
            kept.insert(channel.as_str().to_owned(), (CheckpointId::trusted(&since), text));
        }
    }
    for (list, found) in lists {
        members.insert(list.to_owned(), Value::Array(segments::join(found)?));
    }
    let memos = checkpoint.writes.iter().filter(|write| write.channel.as_str() == MEMO).filter_map(|write| {
        let (node, key) = write.task_id.as_str().split_once('/')?;
        Some(((node.to_owned(), key.to_owned()), serde_json::from_slice(&write.b.0).ok()?))
    });
    Some(Read {
        run_id: checkpoint.run_id.as_ref().and_then(|run| run.as_str().parse().ok()),
        graph: head.graph,
        step: head.step,
        next: head.next,
        ended: head.ended,
        state: serde_json::from_value(Value::Object(members)).ok()?,
        kept,
        memos: memos.collect::<HashMap<_, _>>(),
    })
}

/// The only graph that continues from messages, so every restored conversation continues with it.
const CONVERSATION: &str = "assistant";

/// The conversation of a restored session of any framework; its other members too, if they fit the state.
fn of_session<S: State>(checkpoint: &Checkpoint) -> Option<Read<S>> {
    let messages = json!(conversation(checkpoint)?);
    let member = |(channel, blob): &(Channel, Blob)| {
        let value = serde_json::from_slice(&blob.b.0).ok().filter(|_| blob.t.as_str() == "json")?;
        Some((channel.as_str().to_owned(), value))
    };
    let mut members: serde_json::Map<String, Value> = checkpoint.blobs.0.iter().filter_map(member).collect();
    members.insert("messages".to_owned(), messages.clone());
    // Another framework may use a member's name for something else.
    let state = serde_json::from_value(Value::Object(members))
        .or_else(|_| serde_json::from_value(json!({"messages": messages})));
    Some(Read {
        run_id: None,
        graph: CONVERSATION.to_owned(),
        step: 0,
        next: Vec::new(),
        ended: None,
        state: state.ok()?,
        kept: StoredValues::new(),
        memos: Memoized::new(),
    })
}

fn version(since: &CheckpointId) -> Result<Version, HostError> {
    serde_json::from_str(&json!(since.as_str()).to_string()).map_err(unfit)
}

fn json_value(value: &Value) -> checkpoint::Value {
    checkpoint::Value { t: ValueType::trusted("json"), b: Bytes64(value.to_string().into_bytes()) }
}

/// An id that sorts after `parent`, even if the clocks of two machines differ: a thread's checkpoints sort by id.
pub(super) fn id_after(id: uuid::Uuid, parent: Option<&CheckpointId>) -> Result<CheckpointId, HostError> {
    let Some(parent) = parent else { return Ok(CheckpointId::trusted(&id.to_string())) };
    let after = uuid::Uuid::try_parse(parent.as_str()).map_err(|_| {
        unfit("the thread's last checkpoint has an id that is not a UUID, so no checkpoint can follow it")
    })?;
    let id = if after >= id { uuid::Uuid::from_u128(after.as_u128().saturating_add(1)) } else { id };
    Ok(CheckpointId::trusted(&id.to_string()))
}
