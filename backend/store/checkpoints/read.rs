//! Reading checkpoints: first their keys and sizes, then, when there is room for them, their contents.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::{Checkpoints, too_large};
use crate::{
    domain::{
        checkpoint::{
            Blob, Bytes64, Channel, Channels, Checkpoint, CheckpointId, MadeBy, Namespace, TaskId, TaskPath, Value,
            ValueType, Version, Write,
        },
        id::ThreadId,
        json::Json,
        limits::{CHECKPOINT_PAGE_BYTES_MAX, CHECKPOINT_READ_BYTES_MAX},
        principal::OwnerId,
    },
    store::{Error, content::signed, page::Page},
};

/// Bytes of a result over which its connection is closed: opening another takes less time than the transfer did.
const RETIRING_BYTES: i64 = 4 * 1024 * 1024;

/// The filter of a list of checkpoints.
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

/// A row of the table, and the size of its checkpoint with all its values and writes.
#[derive(Debug)]
struct Key {
    thread_no: i64,
    ns: String,
    checkpoint_id: String,
    bytes: i64,
}

/// A page of checkpoints that have not been read yet.
#[derive(Debug)]
pub struct FoundPage {
    keys: Vec<Key>,
    /// Whether there are more after it.
    pub has_more: bool,
}

impl FoundPage {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many bytes reading it takes.
    pub fn bytes(&self) -> u64 {
        self.keys.iter().map(|key| key.bytes.unsigned_abs()).sum()
    }
}

/// The result of reading a checkpoint.
#[derive(Debug)]
pub enum Stored {
    Whole(Box<Checkpoint>),
    /// It exists, but has this many bytes, more than the limit.
    Larger(u64),
}

#[derive(Debug)]
struct Row {
    bytes: i64,
    bytes_max: i64,
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

impl Checkpoints<'_> {
    /// The checkpoints of this owner on a page, newest first. The page also ends before its values have too many bytes,
    /// but has at least one checkpoint.
    pub async fn find(
        self,
        owner: &OwnerId,
        filter: &CheckpointFilter,
        wanted: &Page<CheckpointsAfter>,
    ) -> Result<FoundPage, Error> {
        let (after, limit) = (wanted.after.as_ref(), wanted.limit);
        self.scoped(owner, async |mut connection| {
            // One more than requested shows whether there are more.
            let places = sqlx::query_file_as!(
                Key,
                "store/sql/checkpoint_places.sql",
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
            let fits = |place: &Key| {
                bytes += place.bytes;
                bytes <= CHECKPOINT_PAGE_BYTES_MAX as i64 || bytes == place.bytes
            };
            let keys: Vec<Key> =
                places.into_iter().take(usize::try_from(limit).unwrap_or(0)).take_while(fits).collect();
            Ok(FoundPage { has_more: keys.len() < all, keys })
        })
        .await
    }

    /// Reads the found checkpoints, without those removed since. [`Error::Busy`] if one of them has grown since.
    pub async fn read(self, owner: &OwnerId, found: &FoundPage) -> Result<Vec<Checkpoint>, Error> {
        let keys = &found.keys;
        let Some(largest) = keys.iter().max_by_key(|key| key.bytes) else { return Ok(Vec::new()) };
        let id = &largest.checkpoint_id;
        check_read(largest.bytes.unsigned_abs())
            .map_err(|error| Error::TooLarge(format!("{id}: {error}; continue with before={id}")))?;
        let read = self.stored(owner, keys, None);
        let whole = |stored| match stored {
            Stored::Whole(checkpoint) => Ok(*checkpoint),
            Stored::Larger(_) => Err(Error::Busy),
        };
        read.await?.into_iter().map(whole).collect()
    }

    /// The newest checkpoint of a namespace, or the newest that `run_id` made there, or exactly `checkpoint_id`; whole
    /// if it has at most `bytes_max`.
    pub async fn get(self, owner: &OwnerId, wanted: &One<'_>, bytes_max: u64) -> Result<Option<Stored>, Error> {
        let found = self.stored(owner, &[], Some((wanted, bytes_max))).await?.into_iter().next();
        if let Some(Stored::Larger(bytes)) = &found {
            check_read(*bytes)?;
        }
        Ok(found)
    }

    /// The newest checkpoint of the root namespace, whole.
    pub async fn latest(self, owner: &OwnerId, thread: &ThreadId) -> Result<Option<Checkpoint>, Error> {
        let wanted = One { thread, ns: &Namespace::default(), checkpoint_id: None, run_id: None };
        match self.get(owner, &wanted, CHECKPOINT_READ_BYTES_MAX as u64).await? {
            None => Ok(None),
            Some(Stored::Whole(checkpoint)) => Ok(Some(*checkpoint)),
            Some(Stored::Larger(_)) => Err(Error::Busy),
        }
    }

    /// The checkpoints with these keys, in their order, or the one; without contents if they are larger than when they
    /// were found, or than the size given with the one.
    async fn stored(self, owner: &OwnerId, keys: &[Key], one: Option<(&One<'_>, u64)>) -> Result<Vec<Stored>, Error> {
        let numbers: Vec<i64> = keys.iter().map(|key| key.thread_no).collect();
        let namespaces: Vec<String> = keys.iter().map(|key| key.ns.clone()).collect();
        let ids: Vec<String> = keys.iter().map(|key| key.checkpoint_id.clone()).collect();
        let sizes: Vec<i64> = match one {
            Some((_, bytes_max)) => vec![signed(bytes_max)],
            None => keys.iter().map(|key| key.bytes).collect(),
        };
        let (numbers, namespaces, ids, sizes) = (&numbers, &namespaces, &ids, &sizes);
        let one = one.map(|(one, _)| one);
        let read = self.by_itself(owner, |mut connection| async move {
            // Also if the reader is cancelled in the middle of a row.
            connection.retire(true);
            let rows = sqlx::query_file_as!(
                Row,
                "store/sql/checkpoints.sql",
                owner.as_str(),
                numbers,
                namespaces,
                ids,
                one.map(|one| one.thread.as_str()),
                one.map(|one| one.ns.as_str()),
                one.and_then(|one| one.checkpoint_id).map(CheckpointId::as_str),
                one.and_then(|one| one.run_id).map(MadeBy::as_str),
                sizes
            )
            .fetch_all(&mut *connection)
            .await?;
            connection.retire(rows.iter().map(|row| row.bytes.min(row.bytes_max)).sum::<i64>() > RETIRING_BYTES);
            Ok(rows)
        });
        let stored = |row: Row| {
            if row.bytes <= row.bytes_max {
                Stored::Whole(Box::new(row.into()))
            } else {
                Stored::Larger(row.bytes.unsigned_abs())
            }
        };
        Ok(read.await?.into_iter().map(stored).collect())
    }
}

/// The limit for every caller: values that arrive after their checkpoint can make it larger.
fn check_read(bytes: u64) -> Result<(), Error> {
    if bytes <= CHECKPOINT_READ_BYTES_MAX as u64 {
        return Ok(());
    }
    Err(too_large("a checkpoint with its values and pending writes", CHECKPOINT_READ_BYTES_MAX))
}

/// One checkpoint: this one, or the newest of a run, or the newest.
#[derive(Clone, Copy, Debug)]
pub struct One<'a> {
    pub thread: &'a ThreadId,
    pub ns: &'a Namespace,
    pub checkpoint_id: Option<&'a CheckpointId>,
    pub run_id: Option<&'a MadeBy>,
}
