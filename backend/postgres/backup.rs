//! The files of a running cluster, and of the folders beside it, as one tar whose completeness can be verified.
//!
//! ```text
//! postgres/…      the cluster's files as in a Postgres base backup, and the WAL that makes them consistent
//! artifacts/…     the requested folders
//! sessions/…
//! backup.json     last: see [`Summary`]
//! ```
//!
//! Postgres changes its files meanwhile. Its manual says which of them a base backup leaves out, and what makes it
//! consistent: "Making a Base Backup Using the Low Level API".

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::data_dir::DataDir;
use super::error::Error;

/// The name of the last file.
pub(super) const SUMMARY: &str = "backup.json";
/// Incremented when older programs cannot restore what this one writes.
pub(super) const FORMAT: u32 = 1;
/// The cluster's folder in the tar.
pub(super) const CLUSTER: &str = "postgres";

/// Older versions have other names for the functions of a base backup.
const MAJOR_MIN: u32 = 15;
/// WAL segments in 4 GiB: the second number in their names counts up to this. initdb was run with the default segment
/// size, 16 MiB.
const SEGMENTS: u64 = 256;

/// Folders stored empty, which a restored cluster fills again.
const EMPTIED: [&str; 8] =
    ["pg_dynshmem", "pg_notify", "pg_replslot", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans", "pg_wal"];
/// Files that are not the database's content.
const LEFT_OUT: [&str; 5] = ["backup_label", "pg_internal.init", "postmaster.opts", "postmaster.pid", "tablespace_map"];

/// The last file of the tar, which describes it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Summary {
    pub(super) format: u32,
    /// The major version of Postgres.
    pub(super) postgres: u32,
    pub(super) files: u64,
    /// The hash of all bytes before this file.
    pub(super) sha256: String,
}

/// A tar that is being written.
pub struct Backup<W: Write> {
    home: DataDir,
    major: u32,
    tar: Builder<Hashing<W>>,
    files: u64,
}

impl<W: Write> Backup<W> {
    /// Begins a backup of the cluster in `data_dir`.
    pub fn begin(data_dir: &Path, out: W) -> Result<Self, Error> {
        let home = DataDir::existing(data_dir)?;
        let major = home.cluster_major()?.ok_or_else(|| Error::NoCluster { path: home.root().to_owned() })?;
        if major < MAJOR_MIN {
            return Err(Error::NoBackup { path: home.cluster(), major, least: MAJOR_MIN });
        }
        let tar = Builder::new(Hashing { out, digest: Sha256::new(), bytes: 0 });
        Ok(Self { home, major, tar, files: 0 })
    }

    /// Writes the cluster's files, between the start and the stop of Postgres's own backup. `passed` gets each file's
    /// bytes.
    pub fn cluster(&mut self, passed: &mut dyn FnMut(u64)) -> Result<(), Error> {
        self.folder(CLUSTER, &self.home.cluster(), passed)
    }

    /// Writes the backup label returned at the stop, and the WAL from the start to the stop.
    pub fn log(&mut self, label: &str, segments: (&str, &str)) -> Result<(), Error> {
        let name = Path::new(CLUSTER).join("backup_label");
        self.put(&name, &header(EntryType::Regular, 0o600, label.len() as u64), label.as_bytes())?;
        let folder = self.home.cluster().join("pg_wal");
        let incomplete = || Error::LogLost { path: folder.clone() };
        let (first, last) = (number(segments.0).ok_or_else(incomplete)?, number(segments.1).ok_or_else(incomplete)?);
        let timeline = &segments.0[..8];
        for at in first..=last {
            let name = format!("{timeline}{:08X}{:08X}", at / SEGMENTS, at % SEGMENTS);
            let before = self.files;
            self.file(&Path::new(CLUSTER).join("pg_wal").join(&name), &folder.join(&name), &mut |_| {})?;
            if self.files == before {
                return Err(incomplete());
            }
        }
        Ok(())
    }

    /// Writes a folder with its contents, if it exists. Returns the number of files.
    pub fn beside(&mut self, name: &str, path: &Path) -> Result<u64, Error> {
        let before = self.files;
        if path.is_dir() {
            self.folder(name, path, &mut |_| {})?;
        }
        Ok(self.files - before)
    }

    /// Writes the summary. Returns the writer and the number of bytes.
    pub fn finish(mut self) -> Result<(W, u64), Error> {
        let sha256 = hex::encode(self.tar.get_ref().digest.clone().finalize());
        let summary = Summary { format: FORMAT, postgres: self.major, files: self.files, sha256 };
        let text = serde_json::to_vec(&summary).map_err(|error| Error::file(Path::new(SUMMARY))(error.into()))?;
        self.put(Path::new(SUMMARY), &header(EntryType::Regular, 0o600, text.len() as u64), &*text)?;
        let hashing = self.tar.into_inner().map_err(Error::file(Path::new(SUMMARY)))?;
        Ok((hashing.out, hashing.bytes))
    }

    fn folder(&mut self, name: &str, path: &Path, passed: &mut dyn FnMut(u64)) -> Result<(), Error> {
        // The folder itself may be a symbolic link.
        let path = fs::canonicalize(path).map_err(Error::file(path))?;
        let mut left = vec![(PathBuf::from(name), path)];
        while let Some((name, path)) = left.pop() {
            let Some(metadata) = still(fs::symlink_metadata(&path)).map_err(Error::file(&path))? else { continue };
            if metadata.is_dir() {
                self.put(&name, &header(EntryType::Directory, mode(&metadata), 0), io::empty())?;
                let is_emptied = name.parent() == Some(Path::new(CLUSTER))
                    && EMPTIED.iter().any(|emptied| name.file_name() == Some(OsStr::new(emptied)));
                if !is_emptied {
                    left.extend(listed(&path)?.into_iter().map(|(child, path)| (name.join(child), path)));
                }
            } else if metadata.is_symlink() {
                return Err(Error::Link { path });
            } else if metadata.is_file() && !is_left_out(&name) {
                self.file(&name, &path, passed)?;
            }
        }
        Ok(())
    }

    /// A file that may grow, shrink or be removed while it is read: concurrent changes are in the WAL.
    fn file(&mut self, name: &Path, path: &Path, passed: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let Some(file) = still(File::open(path)).map_err(Error::file(path))? else { return Ok(()) };
        let metadata = file.metadata().map_err(Error::file(path))?;
        let size = metadata.len();
        let header = header(EntryType::Regular, mode(&metadata), size);
        self.put(name, &header, file.chain(io::repeat(0)).take(size))?;
        self.files += 1;
        passed(size);
        Ok(())
    }

    fn put(&mut self, name: &Path, header: &Header, content: impl io::Read) -> Result<(), Error> {
        self.tar.append_data(&mut header.clone(), name, content).map_err(Error::file(name))
    }
}

/// The current size of the cluster's files in bytes, for the progress.
pub fn cluster_bytes(data_dir: &Path) -> Result<u64, Error> {
    let cluster = DataDir::existing(data_dir)?.cluster();
    let (mut left, mut bytes) = (vec![fs::canonicalize(&cluster).map_err(Error::file(&cluster))?], 0);
    while let Some(path) = left.pop() {
        match still(fs::symlink_metadata(&path)).map_err(Error::file(&path))? {
            Some(metadata) if metadata.is_dir() => left.extend(listed(&path)?.into_iter().map(|(_, path)| path)),
            Some(metadata) => bytes += metadata.len(),
            None => {}
        }
    }
    Ok(bytes)
}

/// A folder's entries in a fixed order; empty if the folder was removed meanwhile.
fn listed(folder: &Path) -> Result<Vec<(std::ffi::OsString, PathBuf)>, Error> {
    let Some(entries) = still(fs::read_dir(folder)).map_err(Error::file(folder))? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::file(folder))?;
        found.push((entry.file_name(), entry.path()));
    }
    found.sort();
    Ok(found)
}

/// The number of a WAL segment within its timeline, by its name.
fn number(segment: &str) -> Option<u64> {
    let part = |from: usize| u64::from_str_radix(segment.get(from..from + 8)?, 16).ok();
    Some(part(8)? * SEGMENTS + part(16)?)
}

/// `None` for what has been removed meanwhile.
fn still<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn is_left_out(name: &Path) -> bool {
    let file = name.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.starts_with(CLUSTER) && (LEFT_OUT.contains(&file) || file.starts_with("pgsql_tmp"))
}

fn mode(metadata: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(metadata) & 0o777
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_size(size);
    header
}

/// Passes bytes on, and counts and hashes them.
struct Hashing<W> {
    out: W,
    digest: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
