//! Bytes on a local disk.
//!
//! Uses `openat` directly, not `object_store`'s `LocalFileSystem`, which needs the name before the first byte and
//! follows symbolic links. Here an upload is written under a temporary name, synced, renamed to its hash, and the
//! folder synced, in this order; every folder below the root is opened relative to its parent without following links,
//! so a planted link leads nowhere.
//!
//! ```text
//! <root>/<home>/tmp/<uuid>                   an upload in progress
//! <root>/<home>/sha256/<2 digits>/<64 digits>
//! ```

use std::{
    fs::{DirBuilder, File},
    io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fstat, fstatvfs, mkdirat, open, openat, renameat, statat, unlinkat,
};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};
use tokio_util::io::ReaderStream;
use uuid::Uuid;

use super::{Error, Stored};
use crate::domain::{
    artifact::Hash,
    limits::{ARTIFACT_RESERVE_BYTES, ARTIFACT_RESERVE_PART},
};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Bytes read from a file at once.
const READ_BYTES: usize = 128 * 1024;
/// The free space is checked again after each this many bytes of an upload.
const CHECK_BYTES: usize = 256 * 1024;

/// The part of the operator's folder that belongs to one database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Disk {
    place: Arc<DiskFolder>,
}

#[derive(Debug)]
struct DiskFolder {
    root: PathBuf,
    home: String,
    /// The first two digits for which this process has synced the folder.
    synced: [AtomicBool; 256],
}

impl Disk {
    /// Creates the root if it does not exist. The database's part of it is created with the first bytes.
    pub fn open(root: &Path, home: Uuid) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let synced = [const { AtomicBool::new(false) }; 256];
        Ok(Self { place: Arc::new(DiskFolder { root: root.to_owned(), home: home.simple().to_string(), synced }) })
    }

    /// Begins an upload.
    pub(super) async fn begin(&self, name: Uuid) -> Result<DiskWriter, Error> {
        let place = Arc::clone(&self.place);
        let (staged, file) = blocking(move || {
            let folder = place.folder(&["tmp"], true)?;
            check_room(&folder, 0)?;
            let name = name.simple().to_string();
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&folder, &name, flags, Mode::from_raw_mode(0o600))?;
            Ok((Staged { folder, name, is_named: false }, File::from(file)))
        })
        .await?;
        Ok(DiskWriter { staged, file: tokio::fs::File::from_std(file), since_check: 0 })
    }

    /// Renames an upload to its hash; when this returns, it survives a power failure.
    pub(super) async fn publish(&self, staged: Staged, hash: Hash) -> Result<(), Error> {
        let place = Arc::clone(&self.place);
        blocking(move || {
            // Moves the whole value in; the closure would otherwise capture only a copy of the flag.
            let mut staged = staged;
            let (first, digits) = name_of(hash);
            let folder = place.folder(&["sha256", &first], true)?;
            renameat(&staged.folder, &staged.name, &folder, &digits)?;
            staged.is_named = true;
            File::from(folder).sync_all()?;
            place.sync_path(hash, &first)
        })
        .await
    }

    /// Reads a part of a content, provided its file has the full size.
    pub(super) async fn read(
        &self,
        hash: Hash,
        size: u64,
        from: u64,
        length: u64,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, Error> {
        let place = Arc::clone(&self.place);
        let file = blocking(move || {
            let (first, digits) = name_of(hash);
            let folder = place.folder(&["sha256", &first], false)?;
            // Opening a planted pipe must not block until its other end is open.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = openat(&folder, &digits, flags, Mode::empty()).map_err(|error| match error {
                rustix::io::Errno::LOOP => io::ErrorKind::InvalidData.into(),
                error => io::Error::from(error),
            })?;
            let stat = fstat(&file)?;
            let is_whole = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && u64::try_from(stat.st_size) == Ok(size);
            if is_whole { Ok(File::from(file)) } else { Err(io::ErrorKind::InvalidData.into()) }
        })
        .await?;
        let mut file = tokio::fs::File::from_std(file);
        file.seek(io::SeekFrom::Start(from)).await?;
        Ok(ReaderStream::with_capacity(file.take(length), READ_BYTES).boxed())
    }

    /// Removes a content; it is no error if it does not exist.
    pub(super) async fn remove(&self, hash: Hash) -> Result<(), Error> {
        let place = Arc::clone(&self.place);
        blocking(move || {
            let (first, digits) = name_of(hash);
            let Some(folder) = place.existing(&["sha256", &first])? else { return Ok(()) };
            forgiving(unlinkat(&folder, &digits, AtFlags::empty()))
        })
        .await
    }

    /// Removes uploads not written to since `before`; returns how many.
    pub(super) async fn remove_unfinished(&self, before: DateTime<Utc>) -> Result<u64, Error> {
        let place = Arc::clone(&self.place);
        blocking(move || {
            let Some(folder) = place.existing(&["tmp"])? else { return Ok(0) };
            let mut removed = 0;
            for (name, modified, _) in files(&folder)? {
                if modified < before.timestamp() {
                    forgiving(unlinkat(&folder, &name, AtFlags::empty()))?;
                    removed += 1;
                }
            }
            Ok(removed)
        })
        .await
    }

    /// Lists all contents, folder by folder.
    pub(super) fn list(&self) -> BoxStream<'static, Result<Vec<Stored>, Error>> {
        let place = Arc::clone(&self.place);
        let folders = futures::stream::iter(0..=255u8);
        let read = move |first: u8| {
            let place = Arc::clone(&place);
            blocking(move || {
                let Some(folder) = place.existing(&["sha256", &hex::encode([first])])? else { return Ok(Vec::new()) };
                let stored = |(name, _, size): (String, i64, u64)| Some(Stored { hash: name.parse().ok()?, size });
                Ok(files(&folder)?.into_iter().filter_map(stored).collect())
            })
        };
        folders.then(read).boxed()
    }
}

impl DiskFolder {
    /// Opens a folder below the home, with `make` creating what is missing.
    fn folder(&self, path: &[&str], make: bool) -> io::Result<OwnedFd> {
        let mut folder = open(&self.root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        for step in std::iter::once(self.home.as_str()).chain(path.iter().copied()) {
            if make {
                match mkdirat(&folder, step, Mode::from_raw_mode(0o700)) {
                    Ok(()) => File::from(folder.try_clone()?).sync_all()?,
                    Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            folder = openat(&folder, step, FOLDER, Mode::empty())?;
        }
        Ok(folder)
    }

    fn existing(&self, path: &[&str]) -> io::Result<Option<OwnedFd>> {
        match self.folder(path, false) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Syncs the folders once per process: another process may have created one and died before syncing it.
    fn sync_path(&self, hash: Hash, first: &str) -> io::Result<()> {
        let synced = &self.synced[usize::from(hash.as_bytes()[0])];
        if !synced.load(Ordering::Acquire) {
            for path in [&[][..], &["sha256"], &["sha256", first]] {
                File::from(self.folder(path, false)?).sync_all()?;
            }
            File::from(open(&self.root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
                .sync_all()?;
            synced.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// An upload that has no name yet. It is removed on drop.
#[derive(Debug)]
pub(super) struct Staged {
    folder: OwnedFd,
    name: String,
    is_named: bool,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_named {
            // If this fails, the sweep removes it later.
            let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// An upload that is being written.
#[derive(Debug)]
pub(super) struct DiskWriter {
    staged: Staged,
    file: tokio::fs::File,
    /// Bytes since the free space was last checked.
    since_check: usize,
}

impl DiskWriter {
    pub(super) async fn write(&mut self, bytes: &Bytes) -> Result<(), Error> {
        self.since_check += bytes.len();
        if self.since_check > CHECK_BYTES {
            self.since_check = 0;
            check_room(&self.staged.folder, bytes.len() as u64)?;
        }
        Ok(self.file.write_all(bytes).await?)
    }

    /// Flushes the bytes to disk.
    pub(super) async fn finish(mut self) -> Result<Staged, Error> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        Ok(self.staged)
    }
}

/// Fails if uploads would use the reserve of the volume: the log may be on it.
fn check_room(folder: &OwnedFd, more: u64) -> io::Result<()> {
    let volume = fstatvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(volume.f_frsize);
    let reserve = ARTIFACT_RESERVE_BYTES.min(bytes(volume.f_blocks) / ARTIFACT_RESERVE_PART);
    if bytes(volume.f_bavail) < reserve.saturating_add(more) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
}

/// The folder of a content and its name in it.
fn name_of(hash: Hash) -> (String, String) {
    let digits = hash.to_string();
    (digits[..2].to_owned(), digits)
}

/// The regular files of a folder: name, time of the last write in seconds, size.
fn files(folder: &OwnedFd) -> io::Result<Vec<(String, i64, u64)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            found.push((name.to_owned(), stat.st_mtime, stat.st_size.unsigned_abs()));
        }
    }
    Ok(found)
}

fn forgiving(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| io::Error::other("the disk's thread died"))??)
}

/// For tests that inspect the contents.
impl Disk {
    pub async fn hashes(&self) -> Result<Vec<Hash>, Error> {
        let folders: Vec<Vec<Stored>> = self.list().try_collect().await?;
        Ok(folders.into_iter().flatten().map(|stored| stored.hash).collect())
    }
}
