//! Bodies of the HTTP API as a runner sends and reads them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value as JsonValue;

use crate::{
    domain::{
        checkpoint::{Blob, Channel, Channels, CheckpointId, MadeBy, Namespace, TaskId, TaskPath, Value, Version},
        id::{Name, RunId, ThreadId},
        json::Json,
        run::Status,
    },
    emitters::host::ChildEnd,
    store::checkpoints::{NewCheckpoint, NewWrites},
};

/// A run: the members that describe its end.
#[derive(Deserialize)]
pub(super) struct Run {
    pub run_id: RunId,
    pub status: Status,
    output: Option<JsonValue>,
    error: Option<JsonValue>,
    created_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
}

impl Run {
    pub(super) fn end(self) -> Option<ChildEnd> {
        let Self { run_id, status, output, error, created_at, ended_at } = self;
        let took = (ended_at? - created_at).to_std().unwrap_or_default();
        Some(ChildEnd { run_id, status, output, error, took })
    }
}

/// A page of runs.
#[derive(Deserialize)]
pub(super) struct Runs {
    pub runs: Vec<Run>,
    pub next_cursor: Option<String>,
}

/// A created run: the members that may differ from the request.
#[derive(Deserialize)]
pub(super) struct Created {
    pub run_id: RunId,
    pub root_run_id: RunId,
    pub thread_id: Option<ThreadId>,
    pub session_id: Option<Name>,
    pub agent: Option<Name>,
}

/// An artifact as the server describes it.
#[derive(Deserialize)]
pub(super) struct Artifact {
    pub artifact_id: uuid::Uuid,
    pub sha256: String,
    pub size: u64,
    pub media_type: String,
}

/// The body of `PUT …/checkpoints/{checkpoint_id}`.
#[derive(Serialize)]
pub(super) struct Put<'a> {
    ns: &'a Namespace,
    parent_id: &'a Option<CheckpointId>,
    run_id: &'a Option<MadeBy>,
    checkpoint: &'a Value,
    metadata: &'a Json,
    versions: &'a Channels<Version>,
    blobs: &'a Channels<Blob>,
}

impl<'a> From<&'a NewCheckpoint> for Put<'a> {
    fn from(new: &'a NewCheckpoint) -> Self {
        let NewCheckpoint { ns, parent_id, run_id, checkpoint, metadata, versions, blobs, .. } = new;
        Self { ns, parent_id, run_id, checkpoint, metadata, versions, blobs }
    }
}

/// The body of `PUT …/checkpoints/{checkpoint_id}/writes`.
#[derive(Serialize)]
pub(super) struct PutWrites<'a> {
    ns: &'a Namespace,
    task_id: &'a TaskId,
    task_path: &'a TaskPath,
    upsert: bool,
    writes: Vec<OneWrite<'a>>,
}

#[derive(Serialize)]
struct OneWrite<'a> {
    idx: i32,
    channel: &'a Channel,
    #[serde(flatten)]
    value: &'a Value,
}

impl<'a> From<&'a NewWrites> for PutWrites<'a> {
    fn from(new: &'a NewWrites) -> Self {
        let NewWrites { ns, task_id, task_path, upsert, writes, .. } = new;
        let writes = writes.iter().map(|(idx, channel, value)| OneWrite { idx: *idx, channel, value }).collect();
        Self { ns, task_id, task_path, upsert: *upsert, writes }
    }
}
