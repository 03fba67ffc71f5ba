//! [`RemoteJournal`]: the checkpoints of a thread, over HTTP.

use futures::future::BoxFuture;
use serde::{Serialize, de::IgnoredAny};

use super::{PATIENCE, journal_error};
use crate::{
    client::{Client, Kind},
    domain::{
        checkpoint::{
            Blob, Channel, Channels, Checkpoint, CheckpointId, MadeBy, Namespace, TaskId, TaskPath, Value, Version,
        },
        id::ThreadId,
        json::Json,
    },
    engine::journal::{Journal, JournalError},
    store::checkpoints::{NewCheckpoint, NewWrites},
};

/// The journal of a thread of the server's. A checkpoint has its id before it is sent, and a write its place, so either
/// may be sent twice.
#[derive(Clone, Debug)]
pub struct RemoteJournal {
    client: Client,
    thread: ThreadId,
}

impl RemoteJournal {
    pub fn new(client: Client, thread: ThreadId) -> Self {
        Self { client, thread }
    }

    async fn keep(&self, rest: &[&str], body: &impl Serialize) -> Result<(), JournalError> {
        let segments = [&["threads", self.thread.as_str(), "checkpoints"], rest].concat();
        let put = self.client.insist(PATIENCE, |_| self.client.put::<IgnoredAny>(&segments, body)).await;
        put.map(drop).map_err(|error| journal_error(&error))
    }
}

impl Journal for RemoteJournal {
    fn latest(&self) -> BoxFuture<'_, Result<Option<Checkpoint>, JournalError>> {
        Box::pin(async move {
            let segments = ["threads", self.thread.as_str(), "checkpoints", "latest"];
            match self.client.insist(PATIENCE, |_| self.client.get(&segments, &[])).await {
                Ok(checkpoint) => Ok(Some(checkpoint)),
                Err(error) if error.kind == Kind::NotFound => Ok(None),
                Err(error) => Err(journal_error(&error)),
            }
        })
    }

    fn put(&self, new: NewCheckpoint) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let NewCheckpoint { ns, checkpoint_id, parent_id, run_id, checkpoint, metadata, versions, blobs } = &new;
            let body = Put { ns, parent_id, run_id, checkpoint, metadata, versions, blobs };
            self.keep(&[checkpoint_id.as_str()], &body).await
        })
    }

    fn write(&self, new: NewWrites) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let NewWrites { ns, checkpoint_id, task_id, task_path, upsert, writes } = &new;
            let writes = writes.iter().map(|(idx, channel, value)| OneWrite { idx: *idx, channel, value }).collect();
            let body = PutWrites { ns, task_id, task_path, upsert: *upsert, writes };
            self.keep(&[checkpoint_id.as_str(), "writes"], &body).await
        })
    }

    fn thread(&self) -> &ThreadId {
        &self.thread
    }
}

/// The body of `PUT …/checkpoints/{checkpoint_id}`.
#[derive(Serialize)]
struct Put<'a> {
    ns: &'a Namespace,
    parent_id: &'a Option<CheckpointId>,
    run_id: &'a Option<MadeBy>,
    checkpoint: &'a Value,
    metadata: &'a Json,
    versions: &'a Channels<Version>,
    blobs: &'a Channels<Blob>,
}

/// The body of `PUT …/checkpoints/{checkpoint_id}/writes`.
#[derive(Serialize)]
struct PutWrites<'a> {
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
