//! Restores a data directory from a backup.
//!
//! Invariant: a directory called `postgres` is always complete. Everything is unpacked and synced beside it, and the
//! cluster gets its name last; leftovers of a killed or failed restore are removed by the next.
//!
//! At its first start the cluster recovers as from an archive, which begins another timeline of Postgres. From this the
//! server detects that the log was set back, and notifies its readers.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tar::Archive;

use super::account::Account;
use super::backup::{CLUSTER, FORMAT, SUMMARY, Summary};
use super::data_dir::{DataDir, remove};
use super::error::Error;
use super::lock::Lock;

/// The file of the data directory that names the folder of artifacts.
pub const ARTIFACTS_NOTE: &str = "artifacts.folder";

/// The settings of a restored cluster, in the file that overrides `postgresql.conf`. Recovery requires a command that
/// fetches more WAL; it always fails, since the backup contains all that is needed. Commands and libraries that the
/// backup's settings name are disabled; the operator can set them again.
const SETTINGS: &str = "# Of `runreel restore`: the log was in the backup, and no command of its settings is executed.
restore_command = 'false'
recovery_end_command = ''
archive_cleanup_command = ''
archive_mode = 'off'
archive_command = ''
shared_preload_libraries = ''
session_preload_libraries = ''
local_preload_libraries = ''
ssl = 'off'
ssl_passphrase_command = ''
";
/// The top-level names in a backup.
const NAMES: [&str; 4] = [CLUSTER, "artifacts", "sessions", SUMMARY];
/// Lists the folders being moved into place, one per line, from before the first move until after the last. It is in
/// the data directory itself, where nothing of a backup is unpacked, because the folders it lists are removed.
const MOVING: &str = "restore.moving";
/// The summary is a single line.
const SUMMARY_BYTES_MAX: u64 = 4096;
const STEP: usize = 1024 * 1024;

/// A backup that was verified as complete.
#[derive(Debug)]
pub struct Restore {
    file: PathBuf,
    summary: Summary,
}

impl Restore {
    /// Verifies the whole file and changes nothing. `passed` gets the number of bytes of each read.
    pub fn check(file: &Path, passed: &mut dyn FnMut(u64)) -> Result<Self, Error> {
        let broken = |reason: String| Error::Backup { path: file.to_owned(), reason };
        let (at, summary) = summary_of(file)?.ok_or_else(|| broken(format!("it does not end with {SUMMARY}")))?;
        if summary.format > FORMAT {
            return Err(broken(format!("its form is {}, of a later runreel; restore it with that", summary.format)));
        }
        let mut opened = File::open(file).map_err(Error::file(file))?.take(at);
        let (mut digest, mut buffer) = (Sha256::new(), vec![0; STEP]);
        loop {
            let read = opened.read(&mut buffer).map_err(Error::file(file))?;
            if read == 0 {
                break;
            }
            digest.update(&buffer[..read]);
            passed(read as u64);
        }
        if hex::encode(digest.finalize()) != summary.sha256 {
            return Err(broken("its bytes are not those that were written".to_owned()));
        }
        Ok(Self { file: file.to_owned(), summary })
    }

    /// The major version of Postgres that the next start needs.
    pub fn postgres(&self) -> u32 {
        self.summary.postgres
    }

    pub fn files(&self) -> u64 {
        self.summary.files
    }

    /// Unpacks the backup into `data_dir`, which must have neither a cluster nor any of the backup's folders.
    pub fn unpack(&self, data_dir: &Path) -> Result<(), Error> {
        let home = DataDir::open(data_dir)?;
        let _lock = Lock::take(&home)?;
        let account = Account::choose(&home)?;
        let staging = home.restore();
        discard(&home, &staging)?;
        DirBuilder::new().mode(0o700).create(&staging).map_err(Error::file(&staging))?;
        let unpacked = self.unpack_into(&staging).and_then(|()| settle(&home, &staging, account));
        let discarded = discard(&home, &staging);
        unpacked.and(discarded)
    }

    fn unpack_into(&self, staging: &Path) -> Result<(), Error> {
        let broken = |reason: String| Error::Backup { path: self.file.clone(), reason };
        let mut archive = Archive::new(File::open(&self.file).map_err(Error::file(&self.file))?);
        archive.set_preserve_mtime(false);
        for entry in archive.entries().map_err(Error::file(&self.file))? {
            let mut entry = entry.map_err(Error::file(&self.file))?;
            let name = entry.path().map_err(Error::file(&self.file))?.into_owned();
            let kind = entry.header().entry_type();
            let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
            let is_known = NAMES.iter().any(|known| name.starts_with(known));
            if !(is_plain && is_known) || !(kind.is_file() || kind.is_dir()) {
                return Err(broken(format!("it contains {}, which no backup does", name.display())));
            }
            entry.unpack_in(staging).map_err(Error::file(&staging.join(name)))?;
        }
        let summary = staging.join(SUMMARY);
        fs::remove_file(&summary).map_err(Error::file(&summary))
    }
}

/// Removes what was unpacked and, unless the cluster is in place, the folders already moved.
fn discard(home: &DataDir, staging: &Path) -> Result<(), Error> {
    let marker = home.root().join(MOVING);
    let moving = fs::read_to_string(&marker).unwrap_or_default();
    if fs::symlink_metadata(home.cluster()).is_err() {
        for name in moving.lines() {
            remove(&home.root().join(name))?;
        }
    }
    remove(staging)?;
    match fs::remove_file(&marker) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file(&marker)(error)),
        _ => Ok(()),
    }
}

/// Moves the folders into place, the cluster last.
fn settle(home: &DataDir, staging: &Path, account: Account) -> Result<(), Error> {
    let cluster = staging.join(CLUSTER);
    let signal = cluster.join("recovery.signal");
    File::create(&signal).map_err(Error::file(&signal))?;
    let settings = cluster.join("postgresql.auto.conf");
    fs::write(&settings, SETTINGS).map_err(Error::file(&settings))?;
    every(&cluster, &|path| match account {
        Account::Other { uid, gid } => lchown(path, Some(uid), Some(gid)),
        Account::Own => Ok(()),
    })?;
    every(staging, &|path| File::open(path)?.sync_all())?;
    let mut names: Vec<_> =
        fs::read_dir(staging).map_err(Error::file(staging))?.flatten().map(|one| one.file_name()).collect();
    names.sort_by_key(|name| name == CLUSTER);
    for name in &names {
        let place = home.root().join(name);
        if fs::symlink_metadata(&place).is_ok() {
            return Err(Error::Occupied { path: place });
        }
    }
    // The note is of a database that was here before; the artifacts of this one are in the backup.
    if names.iter().any(|name| name == "artifacts") {
        let _ = fs::remove_file(home.root().join(ARTIFACTS_NOTE));
    }
    let moving = home.root().join(MOVING);
    let lines: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
    let written = File::create(&moving).and_then(|mut file| {
        file.write_all(lines.join("\n").as_bytes())?;
        file.sync_all()
    });
    written.map_err(Error::file(&moving))?;
    for name in names {
        let place = home.root().join(&name);
        fs::rename(staging.join(name), &place).map_err(Error::file(&place))?;
    }
    File::open(home.root()).and_then(|root| root.sync_all()).map_err(Error::file(home.root()))
}

/// Where the summary begins in the file, and the summary; `None` if the file does not end with one.
fn summary_of(file: &Path) -> Result<Option<(u64, Summary)>, Error> {
    let mut archive = Archive::new(File::open(file).map_err(Error::file(file))?);
    let mut last = None;
    // A file that is not a tar, or is truncated, has an unreadable entry.
    for entry in archive.entries_with_seek().map_err(Error::file(file))? {
        let Ok(entry) = entry else { return Ok(None) };
        let is_summary = entry.path().is_ok_and(|name| name == Path::new(SUMMARY));
        let at = entry.raw_header_position();
        let mut text = Vec::new();
        last = (is_summary && entry.take(SUMMARY_BYTES_MAX).read_to_end(&mut text).is_ok())
            .then(|| serde_json::from_slice(&text).ok().map(|summary| (at, summary)))
            .flatten();
    }
    Ok(last)
}

/// Applies `act` to everything in a folder, and to the folder last.
fn every(path: &Path, act: &dyn Fn(&Path) -> io::Result<()>) -> Result<(), Error> {
    if fs::symlink_metadata(path).map_err(Error::file(path))?.is_dir() {
        for entry in fs::read_dir(path).map_err(Error::file(path))? {
            every(&entry.map_err(Error::file(path))?.path(), act)?;
        }
    }
    act(path).map_err(Error::file(path))
}
