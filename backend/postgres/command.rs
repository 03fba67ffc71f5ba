//! Runs a Postgres program on a directory, as the cluster's user, wherever that directory is.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use tokio::process::Command;

use super::account::Account;
use super::error::Error;

/// A command without arguments and the name by which the program reaches its data directory (`-D`).
/// Keep it until the program has started.
#[derive(Debug)]
pub(super) struct OnDirectory {
    pub(super) command: Command,
    pub(super) directory: PathBuf,
    _open: Option<OwnedFd>,
}

/// A command that inherits nothing. The environment is empty: `PG*` variables would change what Postgres does, and
/// the server's secrets must not be in `/proc/<pid>/environ` of another user. It has its own process group, because
/// Ctrl-C reaches a terminal's whole foreground group and only the server may end the cluster.
pub(super) fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .process_group(0);
    command
}

/// As root, the directory may be below one that the cluster's user cannot traverse (`/root`, a 0700 parent). So root
/// opens it and the program and its children inherit the descriptor: `/proc/self/fd/N` is a magic link that requires
/// no traversal. (A working directory would not work: Postgres 15 leaves it to resolve its own path, cannot return, and
/// `/proc/self/cwd` is then the folder of its programs.) Until [`OnDirectory`] is dropped, other children of this
/// process inherit the descriptor too, but the directory's mode still protects it.
pub(super) fn on_directory(program: &Path, directory: &Path, account: Account) -> Result<OnDirectory, Error> {
    let mut command = plain(program);
    let mut open = None;
    let mut name = directory.to_path_buf();
    if let Account::Other { uid, gid } = account {
        // The standard library also empties the supplementary groups when root changes the user.
        command.uid(uid).gid(gid);
        if cfg!(target_os = "linux") {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let descriptor = rustix::fs::open(directory, flags, Mode::empty())
                .map_err(|errno| Error::file(directory)(errno.into()))?;
            name = PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
            open = Some(descriptor);
        }
    }
    Ok(OnDirectory { command, directory: name, _open: open })
}
