//! One owner per data directory: an advisory lock that the kernel releases however the process ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::data_dir::{DataDir, NO_LINK};
use super::error::Error;

/// Held until dropped. The file is never removed: otherwise two processes could lock two different files.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) fn take(home: &DataDir) -> Result<Self, Error> {
        let path = home.lock();
        // Not truncated on opening: until the lock is acquired, the pid in the file is the owner's.
        let opened =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).custom_flags(NO_LINK).open(&path);
        let mut file = opened.map_err(|source| refused(home.root(), &path, source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // The owner may be between locking and writing; then the pid is not reported.
                let pid = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
                return Err(Error::InUse { pid, data_dir: home.root().to_path_buf() });
            }
            Err(TryLockError::Error(source)) => return Err(Error::File { path, source }),
        }
        file.set_len(0).map_err(Error::file(&path))?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(Error::file(&path))?;
        Ok(Self { _file: file })
    }
}

/// The lock is the first write of a start, so another user's data directory is detected here.
fn refused(root: &Path, path: &Path, source: io::Error) -> Error {
    let me = rustix::process::geteuid().as_raw();
    match fs::metadata(root) {
        Ok(meta) if source.kind() == io::ErrorKind::PermissionDenied && meta.uid() != me => {
            Error::Owner { path: root.to_path_buf(), owner: meta.uid(), me }
        }
        _ => Error::file(path)(source),
    }
}
