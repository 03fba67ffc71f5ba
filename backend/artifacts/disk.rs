//! Bytes on a local disk.
//!
//! By hand on `openat`, not through `object_store`'s `LocalFileSystem`: that one wants a name before the first byte and
//! follows symbolic links on the way. Here an upload is written under a name of its own, synced, renamed to its hash,
//! and the folder synced, in this order; every step below the root is taken from the folder before it and follows no
//! link, so a link somebody planted leads nowhere.
//!
//! ```text
//! <root>/<home>/tmp/<uuid>                   an upload on its way
//! <root>/<home>/sha256/<2 digits>/<64 digits>
//! ```

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, mkdirat, open, openat, renameat, statat, unlinkat};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};
use tokio_util::io::ReaderStream;
use uuid::Uuid;

use super::{Error, Stored};
use crate::domain::artifact::Hash;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Bytes read from a file at once.
const READ_BYTES: usize = 128 * 1024;

/// A folder of the operator's, and the part of it that belongs to one database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Disk {
    place: Arc<DiskFolder>,
}

#[derive(Debug)]
struct DiskFolder {
    root: PathBuf,
    home: String,
    /// For which first two digits this process has made sure that their folder is on the disk.
    synced: [AtomicBool; 256],
}

impl Disk {
    /// Makes the root if it is not there. The part of it is made with its first bytes.
    #[expect(clippy::disallowed_methods, reason = "the artifact store's own folder")]
    pub fn open(root: &Path, home: Uuid) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let synced = [const { AtomicBool::new(false) }; 256];
        Ok(Self { place: Arc::new(DiskFolder { root: root.to_owned(), home: home.simple().to_string(), synced }) })
    }

    /// Begins an upload.
    pub(super) async fn begin(&self, name: Uuid) -> Result<DiskWriter, Error> {
        let place = Arc::clone(&self.place);
        let (staged, file) = blocking(move || {
            let folder = place.folder(&["tmp"], true)?;
            let name = name.simple().to_string();
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&folder, &name, flags, Mode::from_raw_mode(0o600))?;
            Ok((Staged { folder, name, is_named: false }, File::from(file)))
        })
        .await?;
        Ok(DiskWriter { staged, file: tokio::fs::File::from_std(file) })
    }

    /// Gives an upload its name; when this returns, it survives a loss of power.
    pub(super) async fn publish(&self, staged: Staged, hash: Hash) -> Result<(), Error> {
        let place = Arc::clone(&self.place);
        blocking(move || {
            // The whole of it moves in here; a closure would otherwise take a copy of the flag alone.
            let mut staged = staged;
            let (first, digits) = name_of(hash);
            let folder = place.folder(&["sha256", &first], true)?;
            renameat(&staged.folder, &staged.name, &folder, &digits)?;
            staged.is_named = true;
            File::from(folder).sync_all()?;
            place.sync_way(hash, &first)
        })
        .await
    }

    /// A part of a content, provided its file is whole.
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
            // A pipe that somebody planted must not make us wait for its other end.
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

    /// Removes a content; one that is not there is removed already.
    pub(super) async fn remove(&self, hash: Hash) -> Result<(), Error> {
        let place = Arc::clone(&self.place);
        blocking(move || {
            let (first, digits) = name_of(hash);
            let Some(folder) = place.existing(&["sha256", &first])? else { return Ok(()) };
            forgiving(unlinkat(&folder, &digits, AtFlags::empty()))
        })
        .await
    }

    /// Removes uploads nobody has written to since then; says how many.
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

    /// Everything that is there, folder by folder.
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
    /// The folder at the end of a way below the home, made on the way if that is wanted.
    fn folder(&self, way: &[&str], make: bool) -> io::Result<OwnedFd> {
        let mut folder = open(&self.root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        for step in std::iter::once(self.home.as_str()).chain(way.iter().copied()) {
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

    fn existing(&self, way: &[&str]) -> io::Result<Option<OwnedFd>> {
        match self.folder(way, false) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Another process may have made the folder and died before it was on the disk: once per process we make sure.
    fn sync_way(&self, hash: Hash, first: &str) -> io::Result<()> {
        let synced = &self.synced[usize::from(hash.as_bytes()[0])];
        if !synced.load(Ordering::Acquire) {
            for way in [&[][..], &["sha256"], &["sha256", first]] {
                File::from(self.folder(way, false)?).sync_all()?;
            }
            File::from(open(&self.root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
                .sync_all()?;
            synced.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// An upload that has no name yet. Dropped, it leaves nothing.
#[derive(Debug)]
pub(super) struct Staged {
    folder: OwnedFd,
    name: String,
    is_named: bool,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_named {
            // What cannot be removed now is removed when it is old.
            let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// An upload that is being written.
#[derive(Debug)]
pub(super) struct DiskWriter {
    staged: Staged,
    file: tokio::fs::File,
}

impl DiskWriter {
    pub(super) async fn write(&mut self, bytes: &Bytes) -> Result<(), Error> {
        Ok(self.file.write_all(bytes).await?)
    }

    /// Puts the bytes on the disk.
    pub(super) async fn finish(mut self) -> Result<Staged, Error> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        Ok(self.staged)
    }
}

/// The folder of a content and its name there.
fn name_of(hash: Hash) -> (String, String) {
    let digits = hash.to_string();
    (digits[..2].to_owned(), digits)
}

/// The plain files of a folder: name, time of the last write in seconds, size.
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

/// For tests that look at what lies there.
impl Disk {
    pub async fn hashes(&self) -> Result<Vec<Hash>, Error> {
        let folders: Vec<Vec<Stored>> = self.list().try_collect().await?;
        Ok(folders.into_iter().flatten().map(|stored| stored.hash).collect())
    }
}
