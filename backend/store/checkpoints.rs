//! Checkpoints, their channels' values and pending writes: bytes that are not interpreted here.

mod read;

use chrono::{DateTime, Utc};
use sqlx::PgExecutor;

pub use self::read::{CheckpointFilter, CheckpointsAfter, FoundPage, One, Stored};
use super::Error;
use crate::domain::{
    checkpoint::{Blob, Channel, Channels, CheckpointId, MadeBy, Namespace, TaskId, TaskPath, Value, Version},
    id::ThreadId,
    json::Json,
    limits::{CHECKPOINT_VALUES_BYTES_MAX, CHECKPOINT_WRITES_BYTES_MAX},
    principal::OwnerId,
};

/// Size in bytes over which writes of one checkpoint are serialized.
const LARGE_BYTES: u64 = 256 * 1024;

/// A checkpoint to be stored.
#[derive(Clone, Debug)]
pub struct NewCheckpoint {
    pub ns: Namespace,
    pub checkpoint_id: CheckpointId,
    pub parent_id: Option<CheckpointId>,
    pub run_id: Option<MadeBy>,
    pub checkpoint: Value,
    pub metadata: Json,
    pub versions: Channels<Version>,
    pub blobs: Channels<Blob>,
}

/// The writes of one task.
#[derive(Clone, Debug)]
pub struct NewWrites {
    pub ns: Namespace,
    pub checkpoint_id: CheckpointId,
    pub task_id: TaskId,
    pub task_path: TaskPath,
    /// Whether a write replaces an existing one.
    pub upsert: bool,
    pub writes: Vec<(i32, Channel, Value)>,
}

repository! {
    /// Checkpoints of threads, their values and writes.
    Checkpoints, checkpoints
}

impl Checkpoints<'_> {
    /// Stores a checkpoint and its new values, and creates the thread if needed; returns whether the checkpoint is new,
    /// and when it was created. [`Error::TooLarge`] if it is too large with all its values.
    pub async fn put(
        self,
        owner: &OwnerId,
        thread: &ThreadId,
        new: &NewCheckpoint,
        now: DateTime<Utc>,
    ) -> Result<(bool, DateTime<Utc>), Error> {
        self.by_itself(owner, |mut connection| async move { put(&mut *connection, owner, thread, new, now).await })
            .await
    }

    /// Stores what a task has written, and creates the thread if needed; returns how many were stored.
    /// [`Error::TooLarge`] if they are too large together with what else is pending there.
    pub async fn put_writes(
        self,
        owner: &OwnerId,
        thread: &ThreadId,
        new: &NewWrites,
        now: DateTime<Utc>,
    ) -> Result<u64, Error> {
        let bytes: usize = new.writes.iter().map(|(_, _, value)| value.b.0.len()).sum();
        if bytes as u64 <= LARGE_BYTES {
            return self
                .by_itself(owner, |mut connection| async move {
                    put_writes(&mut *connection, owner, thread, new, now).await
                })
                .await;
        }
        // Large ones of one checkpoint are serialized: concurrent ones would each be counted without the others.
        self.transaction(owner, async |mut tx| {
            let turn = format!("{owner}/{thread}/{}/{}", new.ns, new.checkpoint_id);
            sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", turn).execute(&mut *tx).await?;
            let stored = put_writes(&mut *tx, owner, thread, new, now).await?;
            tx.commit().await?;
            Ok(stored)
        })
        .await
    }
}

fn too_large(what: &str, bytes_max: usize) -> Error {
    Error::TooLarge(format!("{what} may have at most {} MiB together", bytes_max / (1024 * 1024)))
}

/// Stores a checkpoint as [`Checkpoints::put`] does. [`Error::TooLarge`] if it is too large with all its values.
pub(super) async fn put(
    database: impl PgExecutor<'_>,
    owner: &OwnerId,
    thread: &ThreadId,
    new: &NewCheckpoint,
    now: DateTime<Utc>,
) -> Result<(bool, DateTime<Utc>), Error> {
    let blobs = &new.blobs.0;
    let channels: Vec<String> = blobs.iter().map(|(channel, _)| channel.as_str().to_owned()).collect();
    let versions: Vec<String> = blobs.iter().map(|(_, blob)| blob.version.as_json().to_owned()).collect();
    let types: Vec<String> = blobs.iter().map(|(_, blob)| blob.t.as_str().to_owned()).collect();
    let bytes: Vec<&[u8]> = blobs.iter().map(|(_, blob)| blob.b.0.as_slice()).collect();
    let lengths: Vec<i32> = bytes.iter().map(|bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX)).collect();
    let current = Json::of(&new.versions);
    let row = sqlx::query_file!(
        "store/sql/put_checkpoint.sql",
        owner.as_str(),
        thread.as_str(),
        now,
        new.ns.as_str(),
        new.checkpoint_id.as_str(),
        new.parent_id.as_ref().map(CheckpointId::as_str),
        new.run_id.as_ref().map(MadeBy::as_str),
        new.checkpoint.t.as_str(),
        new.checkpoint.b.0,
        new.metadata.as_str(),
        current.as_str(),
        &channels,
        &versions,
        &types,
        &bytes as &[&[u8]],
        CHECKPOINT_VALUES_BYTES_MAX as i64,
        &lengths
    )
    .fetch_optional(database)
    .await?;
    let row = row.ok_or_else(|| too_large("the values of a checkpoint", CHECKPOINT_VALUES_BYTES_MAX))?;
    Ok((row.created, row.created_at))
}

/// Stores writes as [`Checkpoints::put_writes`] does.
async fn put_writes(
    database: impl PgExecutor<'_>,
    owner: &OwnerId,
    thread: &ThreadId,
    new: &NewWrites,
    now: DateTime<Utc>,
) -> Result<u64, Error> {
    let idxs: Vec<i32> = new.writes.iter().map(|(idx, _, _)| *idx).collect();
    let channels: Vec<String> = new.writes.iter().map(|(_, channel, _)| channel.as_str().to_owned()).collect();
    let types: Vec<String> = new.writes.iter().map(|(_, _, value)| value.t.as_str().to_owned()).collect();
    let bytes: Vec<&[u8]> = new.writes.iter().map(|(_, _, value)| value.b.0.as_slice()).collect();
    let row = sqlx::query_file!(
        "store/sql/put_writes.sql",
        owner.as_str(),
        thread.as_str(),
        now,
        new.ns.as_str(),
        new.checkpoint_id.as_str(),
        new.task_id.as_str(),
        new.task_path.as_str(),
        new.upsert,
        &idxs,
        &channels,
        &types,
        &bytes as &[&[u8]],
        CHECKPOINT_WRITES_BYTES_MAX as i64
    )
    .fetch_one(database)
    .await?;
    if row.fits {
        return Ok(row.stored.unsigned_abs());
    }
    Err(too_large("the pending writes of a checkpoint", CHECKPOINT_WRITES_BYTES_MAX))
}
