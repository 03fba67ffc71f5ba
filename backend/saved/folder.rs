//! The folder of one owner: files are replaced atomically, by one writer at a time.
//!
//! A writer holds a lock that other processes honour, writes a temporary file, and renames it over the file once it is
//! on disk. What a killed writer left behind is removed by the next one.

use std::{
    io::{self, Read as _, Write as _},
    path::PathBuf,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, DirBuilder, DirBuilderExt as _, File, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _},
};
use chrono::{DateTime, SecondsFormat, Utc};
use rustix::fs::{FlockOperation, OFlags};

use crate::domain::{
    limits::SAVED_FILE_BYTES_MAX,
    transcript::{SavedName, SavedSession, Unreadable},
};

const LOCK: &str = ".lock";
/// A flag for opening: does not block, for example on a pipe that no other process has open.
const NOT_WAITING: i32 = OFlags::NONBLOCK.bits().cast_signed();
/// The suffix of temporary files, whose names begin with a dot; those of sessions never do.
const UNFINISHED: &str = ".tmp";

/// Where an owner's folder is, or would be.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub root: PathBuf,
    /// The folder below the root, unless it is the root itself.
    pub below: Option<String>,
}

/// An owner's folder. No path leads out of it, not even through a link.
pub(super) struct Folder {
    dir: Dir,
}

/// A file that was read.
pub(super) struct Found {
    pub stamp: Stamp,
    /// `None` if it is not a regular file.
    bytes: Option<Vec<u8>>,
}

/// The metadata that changes when a file does.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Stamp {
    size: u64,
    modified: DateTime<Utc>,
    inode: u64,
}

impl Path {
    /// The folder, if it exists.
    pub(super) fn found(&self) -> io::Result<Option<Folder>> {
        let root = Dir::open_ambient_dir(&self.root, ambient_authority());
        let dir = root.and_then(|root| match &self.below {
            None => Ok(root),
            Some(below) => root.open_dir(below),
        });
        match dir {
            Ok(dir) => Ok(Some(Folder { dir })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The folder, created if it does not exist, accessible only to this system user.
    pub(super) fn made(&self) -> io::Result<Folder> {
        let (above, name) = (self.root.parent(), self.root.file_name());
        let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
        Dir::create_ambient_dir_all(above, ambient_authority())?;
        if let Some(name) = name {
            make(&Dir::open_ambient_dir(above, ambient_authority())?, name.as_ref())?;
        }
        let root = Dir::open_ambient_dir(&self.root, ambient_authority())?;
        let Some(below) = &self.below else { return Ok(Folder { dir: root }) };
        make(&root, below.as_ref())?;
        Ok(Folder { dir: root.open_dir(below)? })
    }
}

fn make(above: &Dir, name: &std::path::Path) -> io::Result<()> {
    match above.create_dir_with(name, DirBuilder::new().mode(0o700)) {
        Ok(()) => sync(above),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync(folder: &Dir) -> io::Result<()> {
    // The handle itself is path-only (`O_PATH`), which cannot be synced.
    folder.open(".")?.sync_all()
}

impl Folder {
    /// Takes the writer's lock; `None` if another writer holds it. It is released on drop or when the process ends.
    pub(super) fn try_lock(&self) -> io::Result<Option<File>> {
        let there = gone(self.dir.symlink_metadata(LOCK))?;
        if there.is_some_and(|there| !there.is_file()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, ".lock is not a file; remove it"));
        }
        let mut options = OpenOptions::new();
        // Does not block on something else put in its place in between.
        options.write(true).create(true).mode(0o600).custom_flags(NOT_WAITING);
        let lock = self.dir.open_with(LOCK, &options)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => self.sweep().map(|()| Some(lock)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what killed writers left behind. The caller holds the lock.
    fn sweep(&self) -> io::Result<()> {
        for entry in self.dir.entries()? {
            let name = entry?.file_name();
            if name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(UNFINISHED)) {
                self.dir.remove_file(name)?;
            }
        }
        Ok(())
    }

    /// Replaces a file atomically and durably. The caller must hold the lock.
    pub(super) fn write(&self, file_name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_beside(file_name, bytes, true)?;
        sync(&self.dir)
    }

    /// Like [`Folder::write`] without durability: for what can be regenerated after a power failure.
    pub(super) fn write_lightly(&self, file_name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_beside(file_name, bytes, false)
    }

    fn write_beside(&self, file_name: &str, bytes: &[u8], is_durable: bool) -> io::Result<()> {
        let beside = format!(".{file_name}{UNFINISHED}");
        let mut options = OpenOptions::new();
        let mut file = self.dir.open_with(&beside, options.write(true).create_new(true).mode(0o600))?;
        let written = file.write_all(bytes).and_then(|()| if is_durable { file.sync_all() } else { Ok(()) });
        if let Err(error) = written.and_then(|()| self.dir.rename(&beside, &self.dir, file_name)) {
            // Frees the space at once if the disk is full; if this fails, the next writer removes it.
            let _ = self.dir.remove_file(&beside);
            return Err(error);
        }
        Ok(())
    }

    pub(super) fn remove(&self, name: &SavedName) -> io::Result<bool> {
        match self.dir.remove_file(name.file_name()) {
            Ok(()) => sync(&self.dir).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The names of the sessions that have files, sorted.
    pub(super) fn names(&self) -> io::Result<Vec<SavedName>> {
        let mut names: Vec<SavedName> = self.files()?.iter().filter_map(|file| SavedName::of_file(file)).collect();
        names.sort();
        Ok(names)
    }

    /// Names of files that could be sessions, whether they are or not.
    pub(super) fn files(&self) -> io::Result<Vec<String>> {
        let mut files = Vec::new();
        for entry in self.dir.entries()? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if name.strip_suffix(".json").is_some_and(|stem| !stem.is_empty() && !stem.starts_with('.')) {
                files.push(name);
            }
        }
        Ok(files)
    }

    /// The stamp of a file; `None` if it does not exist.
    pub(super) fn stamp(&self, file_name: &str) -> io::Result<Option<Stamp>> {
        Ok(gone(self.dir.symlink_metadata(file_name))?.map(|metadata| Stamp::of(&metadata)))
    }

    /// Reads a session's file; at most one byte more than the bound.
    pub(super) fn read(&self, name: &SavedName) -> io::Result<Option<Found>> {
        self.bytes(&name.file_name())
    }

    pub(super) fn bytes(&self, file_name: &str) -> io::Result<Option<Found>> {
        let Some(metadata) = gone(self.dir.symlink_metadata(file_name))? else { return Ok(None) };
        if !metadata.is_file() {
            return Ok(Some(Found { stamp: Stamp::of(&metadata), bytes: None }));
        }
        let Some(file) = gone(self.dir.open(file_name))? else { return Ok(None) };
        // From the opened file: another one may have replaced it by now.
        let (stamp, mut bytes) = (Stamp::of(&file.metadata()?), Vec::new());
        file.take(SAVED_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Some(Found { stamp, bytes: Some(bytes) }))
    }
}

fn gone<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or_default();
        let modified = DateTime::from_timestamp(metadata.mtime(), nanos).unwrap_or_default();
        Self { size: metadata.len(), modified, inode: metadata.ino() }
    }

    /// For messages about a file that cannot be read.
    pub(super) fn told(&self) -> String {
        format!("{} bytes of {}", self.size, self.modified.to_rfc3339_opts(SecondsFormat::Secs, true))
    }
}

impl Found {
    pub(super) fn session(&self, name: SavedName) -> Result<SavedSession, Unreadable> {
        match &self.bytes {
            Some(bytes) => SavedSession::read(name, bytes, self.stamp.modified),
            None => Err(Unreadable { line: 1, column: 1, reason: "this is a link or a folder, not a file".to_owned() }),
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
}
