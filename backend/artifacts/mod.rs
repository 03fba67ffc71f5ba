//! Artifacts: bytes stored under the hash of their content, on a disk or in an S3-compatible bucket.
//!
//! Invariants: content gets its name only when all of it is durable; an artifact is inserted only after that; bytes are
//! removed only while the same ones cannot be uploaded ([`crate::store::artifacts::Artifacts::seize_content`]). So an
//! artifact's bytes exist, regardless of what crashes when. An upload is hashed and bounded as it streams and never
//! entirely in memory; leftovers of interrupted uploads are swept.
//!
//! Start reading at [`Artifacts::receive`], then [`Artifacts::keep`]; [`sweep`] removes.

pub mod disk;
#[cfg(feature = "s3")]
pub mod remote;
pub mod sweep;

use std::{io, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream::BoxStream};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use self::disk::Disk;
#[cfg(feature = "s3")]
use self::remote::Remote;
use crate::{
    clock::{Clock, IdSource},
    domain::{
        artifact::{ArtifactId, Hash},
        limits::{
            ARTIFACT_BYTES_MAX, DOWNLOADS_MAX, TAKE_WAIT_MS_MAX, TAKES_MAX, TAKES_OWN_MAX, UPLOAD_BYTES_PER_S_MIN,
            UPLOAD_GRACE_MS, UPLOAD_SILENCE_MS_MAX, UPLOADS_MAX,
        },
        pace::Pace,
        principal::OwnerId,
    },
    quota::{Full, Quota, Share},
    store::{self, Store, artifacts::Artifact},
};

/// Contents of one request that are published concurrently.
const PUBLISH_AT_ONCE: usize = 8;

/// Why bytes could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("an artifact may have at most {ARTIFACT_BYTES_MAX} bytes")]
    TooLarge,
    /// There is no space for them. Nothing was stored.
    #[error("the artifact store is full")]
    Full(#[source] io::Error),
    /// More transfers are in progress than are allowed. Nothing was done.
    #[error("too many artifact transfers are in progress")]
    Busy(Full),
    /// The sender stopped sending, or is too slow.
    #[error("the upload stalled or was too slow")]
    Slow,
    /// The store cannot be reached, or refused the request.
    #[error("artifact store unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The bytes are missing or changed: something else modified the store.
    #[error("the content of this artifact is damaged")]
    Damaged,
    #[error(transparent)]
    Database(#[from] store::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as K;
        match error.kind() {
            // A file larger than the file system or the process allows counts as no space.
            K::StorageFull | K::QuotaExceeded | K::FileTooLarge => Self::Full(error),
            K::NotFound | K::InvalidData => Self::Damaged,
            _ => Self::Unavailable(Box::new(error)),
        }
    }
}

#[cfg(feature = "s3")]
impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Self::Damaged,
            error => Self::Unavailable(Box::new(error)),
        }
    }
}

/// Why an upload failed.
#[derive(Debug)]
pub enum Broken<E> {
    /// The error of the sender's stream.
    Source(E),
    Store(Error),
}

impl<E, S: Into<Error>> From<S> for Broken<E> {
    fn from(error: S) -> Self {
        Self::Store(error.into())
    }
}

/// Where bytes are stored.
#[derive(Clone, Debug)]
pub enum BlobStore {
    Disk(Disk),
    #[cfg(feature = "s3")]
    Remote(Remote),
}

/// Content in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub hash: Hash,
    pub size: u64,
}

/// Bytes that arrived completely and have no name yet. They are removed on drop.
#[derive(Debug)]
pub struct Upload {
    staged: Staged,
    pub sha256: Hash,
    pub size: u64,
    /// The quota share of a client's upload, until it is kept. [`Artifacts::take`] holds none: a caller that stages
    /// many uploads before it keeps them must not block itself.
    _place: Option<Share>,
}

#[derive(Debug)]
enum Staged {
    Disk(disk::Staged),
    #[cfg(feature = "s3")]
    Remote(remote::Staged),
}

enum Writer {
    Disk(disk::DiskWriter),
    #[cfg(feature = "s3")]
    Remote(remote::RemoteWriter),
}

/// A handle on the artifact store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Artifacts {
    store: Store,
    blobs: BlobStore,
    clock: Clock,
    ids: IdSource,
    uploads: Quota,
    /// For bytes already in memory, which must not wait behind slow clients.
    takes: Quota,
    downloads: Quota,
}

/// How many of each one principal may have in progress.
#[derive(Clone, Copy, Debug)]
pub struct OwnBounds {
    pub uploads: usize,
    pub downloads: usize,
}

impl Artifacts {
    pub fn new(store: Store, blobs: BlobStore, clock: Clock, ids: IdSource, own: OwnBounds) -> Self {
        let uploads = Quota::new(UPLOADS_MAX, own.uploads);
        let downloads = Quota::new(DOWNLOADS_MAX, own.downloads);
        let takes = Quota::new(TAKES_MAX, TAKES_OWN_MAX);
        Self { store, blobs, clock, ids, uploads, takes, downloads }
    }

    pub fn new_id(&self) -> ArtifactId {
        ArtifactId::trusted(self.ids.uuid())
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Receives a stream to its end. Nothing remains of an incomplete one.
    pub async fn receive<E>(
        &self,
        owner: &OwnerId,
        body: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<Upload, Broken<E>> {
        let share = self.uploads.try_take(owner, 1).map_err(Error::Busy)?;
        let upload = self.take_in(body).await?;
        Ok(Upload { _place: Some(share), ..upload })
    }

    /// Like [`Artifacts::receive`], for bytes already in memory; waits briefly for quota.
    pub async fn take(&self, owner: &OwnerId, bytes: Bytes) -> Result<Upload, Error> {
        let wait = Duration::from_millis(TAKE_WAIT_MS_MAX);
        let turn = tokio::time::timeout(wait, self.takes.take(owner, 1)).await;
        let _turn = turn.ok().and_then(Result::ok).ok_or(Error::Busy(Full::Own))?;
        let body = futures::stream::iter([Ok::<_, std::convert::Infallible>(bytes)]);
        self.take_in(body).await.map_err(|broken| match broken {
            Broken::Source(never) => match never {},
            Broken::Store(error) => error,
        })
    }

    async fn take_in<E>(&self, body: impl Stream<Item = Result<Bytes, E>> + Send) -> Result<Upload, Broken<E>> {
        let mut writer = self.blobs.begin(self.ids.uuid()).await?;
        let (mut digest, mut size) = (Sha256::new(), 0u64);
        let arrived = async {
            let mut body = std::pin::pin!(body);
            let silence = Duration::from_millis(UPLOAD_SILENCE_MS_MAX);
            let mut arriving = Pace::new(UPLOAD_GRACE_MS, UPLOAD_BYTES_PER_S_MIN);
            loop {
                let (asked, patience) = (Instant::now(), arriving.patience().min(silence));
                let bytes = tokio::time::timeout(patience, body.next()).await.map_err(|_| Error::Slow)?;
                let Some(bytes) = bytes else { return Ok(()) };
                let bytes = bytes.map_err(Broken::Source)?;
                arriving.passed(asked.elapsed(), bytes.len());
                size += bytes.len() as u64;
                if size > ARTIFACT_BYTES_MAX {
                    return Err(Error::TooLarge.into());
                }
                digest.update(&bytes);
                writer.write(&bytes).await?;
            }
        };
        if let Err(broken) = arrived.await {
            writer.abort().await;
            return Err(broken);
        }
        let staged = writer.finish().await?;
        metrics::counter!("runreel_artifact_bytes_received_total").increment(size);
        Ok(Upload { staged, sha256: Hash::new(digest.finalize().into()), size, _place: None })
    }

    /// Publishes uploads under their hashes and inserts their artifacts; afterwards all of it is durable.
    ///
    /// Each artifact must have the hash and size of its upload. Leftovers of a failure in between are swept.
    pub async fn keep(&self, owner: &OwnerId, uploads: Vec<(Upload, Artifact)>) -> Result<Vec<Artifact>, Error> {
        let content: Vec<(Hash, u64)> = uploads.iter().map(|(upload, _)| (upload.sha256, upload.size)).collect();
        self.store.artifacts().claim_content(owner, &content, self.clock.now()).await?;
        let publish = |(upload, artifact): (Upload, Artifact)| async move {
            assert_eq!((upload.sha256, upload.size), (artifact.sha256, artifact.size), "an artifact is what arrived");
            self.blobs.publish(upload.staged, artifact.sha256).await?;
            Ok::<_, Error>(artifact)
        };
        let artifacts: Vec<Artifact> =
            futures::stream::iter(uploads).map(publish).buffered(PUBLISH_AT_ONCE).try_collect().await?;
        if self.store.artifacts().insert(owner, &artifacts).await? {
            metrics::counter!("runreel_artifacts_created_total").increment(artifacts.len() as u64);
            return Ok(artifacts);
        }
        // It took so long that the bytes counted as unreferenced.
        Err(Error::Unavailable("the upload was swept before it was committed".into()))
    }

    /// Removes artifacts whose event was refused.
    pub async fn forget(&self, owner: &OwnerId, artifacts: &[ArtifactId]) {
        if let Err(error) = self.store.artifacts().forget(owner, artifacts).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "artifacts without events left to the sweep");
        }
    }

    /// Reads `length` bytes of an owner's artifact, beginning at `from`.
    ///
    /// If the whole artifact is read, its hash is verified while streaming: for damaged bytes the last chunk is an
    /// error, so no reader takes them for complete. A part cannot be verified and is sent as it is.
    pub async fn read(
        &self,
        owner: &OwnerId,
        artifact: &Artifact,
        from: u64,
        length: u64,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, Error> {
        let share = self.downloads.try_take(owner, 1).map_err(Error::Busy)?;
        let (hash, size) = (artifact.sha256, artifact.size);
        let bytes = match &self.blobs {
            BlobStore::Disk(disk) => disk.read(hash, size, from, length).await?,
            #[cfg(feature = "s3")]
            BlobStore::Remote(remote) => remote.read(hash, size, from, length).await?,
        };
        let bytes = if length == size { checked(bytes, hash, size).boxed() } else { bytes };
        // The share is released when the stream is dropped.
        Ok(bytes.map(move |bytes| (bytes, &share).0).boxed())
    }
}

/// Passes the bytes on; if they do not match the hash, the last chunk is replaced by an error.
fn checked(
    bytes: BoxStream<'static, io::Result<Bytes>>,
    hash: Hash,
    size: u64,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (mut digest, mut passed) = (Sha256::new(), 0);
    bytes.map(move |piece| {
        let piece = piece?;
        digest.update(&piece);
        passed += piece.len() as u64;
        if passed < size || digest.clone().finalize().as_slice() == hash.as_bytes() {
            return Ok(piece);
        }
        metrics::counter!("runreel_artifacts_damaged_total").increment(1);
        tracing::error!(sha256 = %hash, "artifact content is damaged; restore this file from a backup");
        Err(io::Error::new(io::ErrorKind::InvalidData, "the content of this artifact is damaged"))
    })
}

impl BlobStore {
    async fn begin(&self, name: Uuid) -> Result<Writer, Error> {
        match self {
            // A missing folder makes the store unavailable; it does not mean that an artifact is damaged.
            Self::Disk(disk) => disk.begin(name).await.map(Writer::Disk).map_err(unusable),
            #[cfg(feature = "s3")]
            Self::Remote(remote) => Ok(Writer::Remote(remote.begin(name))),
        }
    }

    async fn publish(&self, staged: Staged, hash: Hash) -> Result<(), Error> {
        match (self, staged) {
            (Self::Disk(disk), Staged::Disk(staged)) => disk.publish(staged, hash).await.map_err(unusable),
            #[cfg(feature = "s3")]
            (Self::Remote(remote), Staged::Remote(staged)) => remote.publish(staged, hash).await.map_err(unusable),
            #[cfg(feature = "s3")]
            _ => Err(Error::Unavailable("an upload went to another store than it began at".into())),
        }
    }

    async fn remove(&self, hash: Hash) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.remove(hash).await,
            #[cfg(feature = "s3")]
            Self::Remote(remote) => remote.remove(hash).await,
        }
    }

    async fn remove_unfinished(&self, before: DateTime<Utc>) -> Result<u64, Error> {
        match self {
            Self::Disk(disk) => disk.remove_unfinished(before).await,
            #[cfg(feature = "s3")]
            Self::Remote(remote) => remote.remove_unfinished(before).await,
        }
    }

    fn list(&self) -> BoxStream<'static, Result<Vec<Stored>, Error>> {
        match self {
            Self::Disk(disk) => disk.list(),
            #[cfg(feature = "s3")]
            Self::Remote(remote) => remote.list(),
        }
    }
}

/// Maps errors of writes, where "not found" means the store's folder or bucket, not an artifact's bytes.
fn unusable(error: Error) -> Error {
    match error {
        Error::Damaged => Error::Unavailable("the folder or bucket of the artifact store does not exist".into()),
        error => error,
    }
}

impl Writer {
    async fn write(&mut self, bytes: &Bytes) -> Result<(), Error> {
        match self {
            Self::Disk(writer) => writer.write(bytes).await,
            #[cfg(feature = "s3")]
            Self::Remote(writer) => writer.write(bytes).await.map_err(unusable),
        }
    }

    async fn finish(self) -> Result<Staged, Error> {
        match self {
            Self::Disk(writer) => writer.finish().await.map(Staged::Disk),
            #[cfg(feature = "s3")]
            Self::Remote(writer) => writer.finish().await.map(Staged::Remote).map_err(unusable),
        }
    }

    #[cfg_attr(not(feature = "s3"), expect(clippy::unused_async, reason = "only a bucket has to be told"))]
    async fn abort(self) {
        match self {
            // The file is removed on drop.
            Self::Disk(_) => {}
            #[cfg(feature = "s3")]
            Self::Remote(writer) => writer.abort().await,
        }
    }
}

#[cfg(test)]
mod tests;
