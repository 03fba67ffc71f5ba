//! Where the socket is: in the data directory, or under `/tmp` if that path is too long or closed to the cluster's
//! user.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::PORT;
use super::account::Account;
use super::data_dir::DataDir;
use super::error::Error;

/// `sun_path` holds 107 bytes and a NUL on Linux, 103 on macOS and the BSDs; the smaller serves both.
const PATH_BYTES_MAX: usize = 103;

pub(super) fn file_name(port: u16) -> String {
    format!(".s.PGSQL.{port}")
}

/// The folder for this data directory and account: always the same one, and never another cluster's.
pub(super) fn folder(home: &DataDir, account: Account) -> PathBuf {
    choose(home.root(), account.can_enter(home.root()))
}

/// Creates the folder if absent, and ensures that it belongs to the cluster's user and is closed to all others: its
/// mode protects the cluster from other users.
pub(super) fn make(folder: &Path, account: Account) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::file(folder)(error)),
        _ => secure(folder, account),
    }
}

/// Removes the socket's own lock file, which Postgres trusts if the pid in it is alive, as with `postmaster.pid` (see
/// `pidfile`). Call it only when no postmaster of this cluster is known: no other program uses the folder.
pub(super) fn remove_stale_lock(folder: &Path) -> Result<(), Error> {
    let path = folder.join(format!("{}.lock", file_name(PORT)));
    fs::remove_file(&path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(Error::file(&path)(error)),
    })
}

fn choose(root: &Path, enterable: bool) -> PathBuf {
    let inside = root.join("socket");
    let length = inside.as_os_str().len() + 1 + file_name(PORT).len();
    // These bytes would terminate the name in Postgres's list of folders or in its pid file.
    let plain = !root.as_os_str().as_bytes().iter().any(|byte| b",\"\n".contains(byte));
    if enterable && plain && length <= PATH_BYTES_MAX {
        return inside;
    }
    let digest = Sha256::digest(root.as_os_str().as_bytes());
    Path::new("/tmp").join(format!("runreel-{}", hex::encode(&digest[..8])))
}

/// In `/tmp` any user may have created the name first: a link or another user's folder is refused, never fixed. Our own
/// (or root's, if a start ended before the `chown`) cannot be swapped for another: `/tmp` is sticky.
fn secure(folder: &Path, account: Account) -> Result<(), Error> {
    let meta = fs::symlink_metadata(folder).map_err(Error::file(folder))?;
    let refuse = |reason: String| Err(Error::SocketDir { path: folder.to_path_buf(), reason });
    if !meta.is_dir() {
        return refuse("it is not a directory".to_owned());
    }
    let me = rustix::process::geteuid().as_raw();
    if meta.uid() != account.uid() && meta.uid() != me {
        return refuse(format!("it belongs to uid {}, not {}", meta.uid(), account.uid()));
    }
    if meta.mode() & 0o7777 != 0o700 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(Error::file(folder))?;
    }
    match account {
        Account::Other { uid, gid } if meta.uid() != uid => {
            lchown(folder, Some(uid), Some(gid)).map_err(Error::file(folder))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_path_keeps_its_socket_and_a_long_or_closed_one_gets_a_short_name_of_its_own() {
        assert_eq!(choose(Path::new("/srv/runreel"), true), Path::new("/srv/runreel/socket"));
        let closed = choose(Path::new("/srv/runreel"), false);
        assert_eq!(closed.as_os_str().len(), "/tmp/runreel-".len() + 16);
        assert!(choose(Path::new("/srv/a,b"), true).starts_with("/tmp"));
        let longest = format!("/{}", "d".repeat(PATH_BYTES_MAX - "//socket/.s.PGSQL.5432".len()));
        assert!(choose(Path::new(&longest), true).starts_with(&longest));
        let too_long = format!("{longest}d");
        assert!(choose(Path::new(&too_long), true).starts_with("/tmp"));
        assert_ne!(choose(Path::new(&too_long), true), closed);
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_refused_and_an_open_folder_is_closed() {
        let scratch = tempfile::tempdir().expect("a folder");
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(scratch.path(), &link).expect("a link");
        assert!(matches!(secure(&link, Account::Own), Err(Error::SocketDir { .. })));
        let open = scratch.path().join("open");
        DirBuilder::new().mode(0o755).create(&open).expect("made");
        secure(&open, Account::Own).expect("closed");
        assert_eq!(fs::metadata(&open).expect("there").mode() & 0o777, 0o700);
    }
}
