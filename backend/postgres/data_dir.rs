//! The data directory: its paths, its creation, and what is known about the cluster in it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::Error;

/// A log larger than this is rotated (one generation) before Postgres starts.
const LOG_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How much of the log an error message includes.
const LOG_TAIL_BYTES_MAX: u64 = 2000;

/// For files that root writes in another user's folder: a link planted there must not lead to one of root's files.
pub(super) const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

#[derive(Debug, Clone)]
pub(super) struct DataDir {
    /// Canonical, so that a directory has one name regardless of the path that led to it.
    root: PathBuf,
}

impl DataDir {
    /// Creates the directory if absent: closed to others, except that as root the cluster's user must pass through it.
    pub(super) fn open(data_dir: &Path) -> Result<Self, Error> {
        let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
        DirBuilder::new().recursive(true).mode(mode).create(data_dir).map_err(Error::file(data_dir))?;
        Self::existing(data_dir)
    }

    pub(super) fn existing(data_dir: &Path) -> Result<Self, Error> {
        let root = fs::canonicalize(data_dir).map_err(Error::file(data_dir))?;
        Ok(Self { root })
    }

    /// Like [`Self::existing`], for a directory that may not exist yet.
    pub(super) fn expected(data_dir: &Path) -> Result<Self, Error> {
        match fs::canonicalize(data_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self { root: data_dir.to_owned() }),
            found => Ok(Self { root: found.map_err(Error::file(data_dir))? }),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn cluster(&self) -> PathBuf {
        self.root.join("postgres")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("runreel.lock")
    }

    pub(super) fn password(&self) -> PathBuf {
        self.root.join("postgres.pass")
    }

    /// Where a cluster of another major version is filled before it replaces this one.
    pub(super) fn upgrade(&self) -> PathBuf {
        self.root.join("upgrade")
    }

    /// Where the cluster is kept after one of another major version has replaced it.
    pub(super) fn replaced(&self, major: u32) -> PathBuf {
        self.root.join(format!("postgres-{major}"))
    }

    /// Where a backup is unpacked before its folders are moved into place.
    pub(super) fn restore(&self) -> PathBuf {
        self.root.join("restore")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.root.join("postgres.log")
    }

    /// The inode identifies the cluster in its postmaster's command line: it survives a rename of any folder above.
    pub(super) fn cluster_inode(&self) -> Result<u64, Error> {
        let path = self.cluster();
        Ok(fs::metadata(&path).map_err(Error::file(&path))?.ino())
    }

    /// The major version that created the cluster; `None` if there is no cluster yet.
    pub(super) fn cluster_major(&self) -> Result<Option<u32>, Error> {
        let path = self.cluster();
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(Error::file(&path))?,
        };
        let version = path.join("PG_VERSION");
        let text = match fs::read_to_string(&version) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NotACluster { path });
            }
            other => other.map_err(Error::file(&version))?,
        };
        text.trim().parse().map(Some).map_err(|_| Error::NotACluster { path })
    }

    /// Opens the log for appending, after rotating a large one. Returns it with its length in bytes.
    pub(super) fn open_log(&self) -> Result<(File, u64), Error> {
        let path = self.log();
        if fs::metadata(&path).is_ok_and(|meta| meta.len() > LOG_BYTES_MAX) {
            fs::rename(&path, self.root.join("postgres.log.1")).map_err(Error::file(&path))?;
        }
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(NO_LINK)
            .open(&path)
            .map_err(Error::file(&path))?;
        let length = log.metadata().map_err(Error::file(&path))?.len();
        Ok((log, length))
    }

    /// The end of what was logged since the log had `from` bytes.
    pub(super) fn log_tail(&self, from: u64) -> String {
        let read = || -> io::Result<String> {
            let mut log = File::open(self.log())?;
            let length = log.metadata()?.len();
            log.seek(SeekFrom::Start(from.max(length.saturating_sub(LOG_TAIL_BYTES_MAX))))?;
            let mut bytes = Vec::new();
            log.take(LOG_TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        read().unwrap_or_else(|error| format!("(unreadable: {error})"))
    }
}

/// Removes a folder with its contents, if it exists.
pub(super) fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file(folder)(error)),
        _ => Ok(()),
    }
}
