//! Checkpoints, their channels' values and pending writes: bytes that nobody here looks into.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::PgExecutor;

use super::{Error, page::Page};
use crate::domain::{
    checkpoint::{
        Blob, Bytes64, Channel, Channels, Checkpoint, CheckpointId, MadeBy, Namespace, TaskId, TaskPath, Value,
        ValueType, Version, Write,
    },
    id::ThreadId,
    json::Json,
    limits::CHECKPOINT_PAGE_BYTES_MAX,
    principal::OwnerId,
};

/// A checkpoint on its way in.
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

/// What one task writes.
#[derive(Clone, Debug)]
pub struct NewWrites {
    pub ns: Namespace,
    pub checkpoint_id: CheckpointId,
    pub task_id: TaskId,
    pub task_path: TaskPath,
    /// Whether a write takes the place of one that is there.
    pub upsert: bool,
    pub writes: Vec<(i32, Channel, Value)>,
}

/// Which checkpoints are wanted.
#[derive(Clone, Debug, Default)]
pub struct CheckpointFilter {
    /// `None` for all threads of the owner.
    pub thread_id: Option<ThreadId>,
    /// `None` for all namespaces.
    pub ns: Option<Namespace>,
    /// Older than this one.
    pub before: Option<CheckpointId>,
    pub run_id: Option<MadeBy>,
    /// An object that the metadata contains (`jsonb` containment).
    pub metadata: Option<Json>,
}

/// Where a page of checkpoints begins: after this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointsAfter {
    pub checkpoint_id: CheckpointId,
    pub thread_id: ThreadId,
    pub ns: Namespace,
}

impl From<&Checkpoint> for CheckpointsAfter {
    fn from(last: &Checkpoint) -> Self {
        let (checkpoint_id, thread_id, ns) = (last.checkpoint_id.clone(), last.thread_id.clone(), last.ns.clone());
        Self { checkpoint_id, thread_id, ns }
    }
}

/// Which row of the table.
#[derive(Debug)]
struct Key {
    thread_no: i64,
    ns: String,
    checkpoint_id: String,
}

/// A row and how many bytes its checkpoint is with all its values.
#[derive(Debug)]
struct StoredKey {
    thread_no: i64,
    ns: String,
    checkpoint_id: String,
    bytes: i64,
}

#[derive(Debug)]
struct Row {
    thread_id: String,
    ns: String,
    checkpoint_id: String,
    parent_id: Option<String>,
    run_id: Option<String>,
    t: String,
    b: Vec<u8>,
    metadata: String,
    versions: String,
    created_at: DateTime<Utc>,
    blob_channels: Vec<String>,
    blob_types: Vec<String>,
    blob_bytes: Vec<Vec<u8>>,
    write_task_ids: Vec<String>,
    write_task_paths: Vec<String>,
    write_idxs: Vec<i32>,
    write_channels: Vec<String>,
    write_types: Vec<String>,
    write_bytes: Vec<Vec<u8>>,
}

impl From<Row> for Checkpoint {
    fn from(row: Row) -> Self {
        let versions: Channels<Version> = serde_json::from_str(&row.versions).unwrap_or_default();
        let known: HashMap<&Channel, &Version> =
            versions.0.iter().map(|(channel, version)| (channel, version)).collect();
        let values = row.blob_channels.into_iter().zip(row.blob_types).zip(row.blob_bytes);
        let blobs = values.filter_map(|((channel, t), b)| {
            let channel = Channel::trusted(&channel);
            let version = (*known.get(&channel)?).clone();
            Some((channel, Blob { version, t: ValueType::trusted(&t), b: Bytes64(b) }))
        });
        let blobs = Channels(blobs.collect());
        let places = row.write_task_ids.into_iter().zip(row.write_task_paths).zip(row.write_idxs);
        let values = row.write_channels.into_iter().zip(row.write_types).zip(row.write_bytes);
        let writes = places.zip(values).map(|(((task_id, task_path), idx), ((channel, t), b))| Write {
            task_id: TaskId::trusted(&task_id),
            task_path: TaskPath::trusted(&task_path),
            idx,
            channel: Channel::trusted(&channel),
            t: ValueType::trusted(&t),
            b: Bytes64(b),
        });
        Self {
            thread_id: ThreadId::trusted(&row.thread_id),
            ns: Namespace::trusted(&row.ns),
            checkpoint_id: CheckpointId::trusted(&row.checkpoint_id),
            parent_id: row.parent_id.as_deref().map(CheckpointId::trusted),
            run_id: row.run_id.as_deref().map(MadeBy::trusted),
            checkpoint: Value { t: ValueType::trusted(&row.t), b: Bytes64(row.b) },
            metadata: Json::trusted(row.metadata),
            blobs,
            writes: writes.collect(),
            versions,
            created_at: row.created_at,
        }
    }
}

repository! {
    /// Checkpoints of threads, their values and writes.
    Checkpoints, checkpoints
}

impl Checkpoints<'_> {
    /// Keeps a checkpoint and the values that are new, and makes the thread if there is none; says whether the
    /// checkpoint is new, and since when it is there.
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

    /// Keeps what a task has written, and makes the thread if there is none; says how many were stored.
    pub async fn put_writes(
        self,
        owner: &OwnerId,
        thread: &ThreadId,
        new: &NewWrites,
        now: DateTime<Utc>,
    ) -> Result<u64, Error> {
        let idxs: Vec<i32> = new.writes.iter().map(|(idx, _, _)| *idx).collect();
        let channels: Vec<String> = new.writes.iter().map(|(_, channel, _)| channel.as_str().to_owned()).collect();
        let types: Vec<String> = new.writes.iter().map(|(_, _, value)| value.t.as_str().to_owned()).collect();
        let bytes: Vec<&[u8]> = new.writes.iter().map(|(_, _, value)| value.b.0.as_slice()).collect();
        let (idxs, channels, types, bytes) = (&idxs, &channels, &types, &bytes);
        self.by_itself(owner, |mut connection| async move {
            let stored = sqlx::query_file!(
                "backend/store/sql/put_writes.sql",
                owner.as_str(),
                thread.as_str(),
                now,
                new.ns.as_str(),
                new.checkpoint_id.as_str(),
                new.task_id.as_str(),
                new.task_path.as_str(),
                new.upsert,
                idxs,
                channels,
                types,
                bytes as &[&[u8]]
            );
            Ok(stored.execute(&mut *connection).await?.rows_affected())
        })
        .await
    }

    /// Checkpoints of this owner, newest first; says besides whether there are more. A page also ends before its values
    /// are too many bytes, but has one checkpoint at least.
    pub async fn list(
        self,
        owner: &OwnerId,
        filter: &CheckpointFilter,
        wanted: &Page<CheckpointsAfter>,
    ) -> Result<(Vec<Checkpoint>, bool), Error> {
        let (after, limit) = (wanted.after.as_ref(), wanted.limit);
        self.scoped(owner, async |mut connection| {
            // One more than wanted tells whether there are more.
            let places = sqlx::query_file_as!(
                StoredKey,
                "backend/store/sql/checkpoint_places.sql",
                owner.as_str(),
                filter.thread_id.as_ref().map(ThreadId::as_str),
                filter.ns.as_ref().map(Namespace::as_str),
                filter.before.as_ref().map(CheckpointId::as_str),
                filter.run_id.as_ref().map(MadeBy::as_str),
                filter.metadata.as_ref().map(Json::as_str),
                after.map(|after| after.checkpoint_id.as_str()),
                after.map(|after| after.thread_id.as_str()),
                after.map(|after| after.ns.as_str()),
                limit + 1
            )
            .fetch_all(&mut *connection)
            .await?;
            let all = places.len();
            let mut bytes = 0;
            let fits = |place: &StoredKey| {
                bytes += place.bytes;
                bytes <= CHECKPOINT_PAGE_BYTES_MAX as i64 || bytes == place.bytes
            };
            let keys: Vec<Key> = places
                .into_iter()
                .take(usize::try_from(limit).unwrap_or(0))
                .take_while(fits)
                .map(|StoredKey { thread_no, ns, checkpoint_id, .. }| Key { thread_no, ns, checkpoint_id })
                .collect();
            let more = keys.len() < all;
            let page = if keys.is_empty() { Vec::new() } else { whole(&mut *connection, owner, keys, None).await? };
            Ok((page, more))
        })
        .await
    }

    /// The newest checkpoint of a namespace, or the newest that `run_id` made there, or exactly `checkpoint_id`.
    pub async fn get(
        self,
        owner: &OwnerId,
        thread: &ThreadId,
        ns: &Namespace,
        checkpoint_id: Option<&CheckpointId>,
        run_id: Option<&MadeBy>,
    ) -> Result<Option<Checkpoint>, Error> {
        let one = One { thread, ns, checkpoint_id, run_id };
        let one = &one;
        let found =
            self.by_itself(owner, |mut connection| async move {
                whole(&mut *connection, owner, Vec::new(), Some(one)).await
            })
            .await?;
        Ok(found.into_iter().next())
    }
}

/// Keeps a checkpoint, as [`Checkpoints::put`] tells.
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
    let current = Json::of(&new.versions);
    let row = sqlx::query_file!(
        "backend/store/sql/put_checkpoint.sql",
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
        &bytes as &[&[u8]]
    )
    .fetch_one(database)
    .await?;
    Ok((row.created, row.created_at))
}

/// A checkpoint that is not known by its key.
struct One<'a> {
    thread: &'a ThreadId,
    ns: &'a Namespace,
    checkpoint_id: Option<&'a CheckpointId>,
    run_id: Option<&'a MadeBy>,
}

/// The checkpoints of these keys, or the one, with their values and writes, in the order of the keys.
async fn whole(
    database: impl PgExecutor<'_>,
    owner: &OwnerId,
    keys: Vec<Key>,
    one: Option<&One<'_>>,
) -> Result<Vec<Checkpoint>, Error> {
    let numbers: Vec<i64> = keys.iter().map(|key| key.thread_no).collect();
    let (namespaces, ids): (Vec<String>, Vec<String>) = keys.into_iter().map(|key| (key.ns, key.checkpoint_id)).unzip();
    let rows = sqlx::query_file_as!(
        Row,
        "backend/store/sql/checkpoints.sql",
        owner.as_str(),
        &numbers,
        &namespaces,
        &ids,
        one.map(|one| one.thread.as_str()),
        one.map(|one| one.ns.as_str()),
        one.and_then(|one| one.checkpoint_id).map(CheckpointId::as_str),
        one.and_then(|one| one.run_id).map(MadeBy::as_str)
    )
    .fetch_all(database)
    .await?;
    Ok(rows.into_iter().map(Checkpoint::from).collect())
}
