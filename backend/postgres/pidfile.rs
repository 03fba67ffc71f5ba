//! `postmaster.pid`, and whether the process it names is really this cluster's postmaster.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};

/// The postmaster's status as it reports it, on the last line of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Starting,
    Ready,
    Stopping,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pidfile {
    pub(super) pid: Pid,
    pub(super) port: u16,
    /// Empty if Postgres was not listening yet.
    pub(super) socket_dir: PathBuf,
    pub(super) status: Status,
}

/// The process that now has the pid: pids are reused, after a reboot or in a new container even at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Ours,
    /// A Postgres that runreel did not start, and that uses this cluster or may use it.
    Stranger,
    /// Some other process, or a zombie. Postgres itself cannot tell and would refuse to start.
    Foreign,
    Nobody,
}

/// An unused setting in the command line of every postmaster that runreel starts, to recognize it.
pub(super) fn mark(cluster_inode: u64) -> String {
    format!("runreel.cluster_inode={cluster_inode}")
}

pub(super) fn path(cluster: &Path) -> PathBuf {
    cluster.join("postmaster.pid")
}

impl Pidfile {
    /// `None` if there is none or it is still being written.
    pub(super) fn read(cluster: &Path) -> Option<Self> {
        parse(&fs::read_to_string(path(cluster)).ok()?)
    }

    pub(super) fn owner(&self, cluster_inode: u64) -> Owner {
        owner(self.pid, cluster_inode)
    }
}

/// On systems without `/proc` any living process with the pid is taken for ours, as Postgres itself would.
pub(super) fn owner(pid: Pid, cluster_inode: u64) -> Owner {
    // EPERM also means that the process exists.
    if test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
        return Owner::Nobody;
    }
    if !cfg!(target_os = "linux") {
        return Owner::Ours;
    }
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    // Readable by every user. A zombie's is empty, which makes it foreign.
    let line = fs::read(format!("{process}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0);
    let program = words.next().unwrap_or_default();
    let mark = mark(cluster_inode);
    if words.any(|word| word == mark.as_bytes()) {
        return Owner::Ours;
    }
    // A postmaster's working directory is its cluster; only a privileged reader may see it.
    let elsewhere = fs::metadata(format!("{process}/cwd")).is_ok_and(|meta| meta.ino() != cluster_inode);
    let postgres = program.ends_with(b"postgres") || program.ends_with(b"postmaster");
    if postgres && !elsewhere { Owner::Stranger } else { Owner::Foreign }
}

/// Lines: pid, data directory, start time, port, socket folder, TCP address, shared memory key, status.
fn parse(text: &str) -> Option<Pidfile> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    // A negative pid is a standalone backend: its actual pid is the number without the sign.
    let pid = lines.first()?.parse::<i32>().ok()?.checked_abs().and_then(Pid::from_raw)?;
    let status = match lines.get(7).copied() {
        Some("ready") => Status::Ready,
        Some("stopping") => Status::Stopping,
        _ => Status::Starting,
    };
    let port = lines.get(3).and_then(|port| port.parse().ok()).unwrap_or_default();
    let socket_dir = lines.get(4).map(PathBuf::from).unwrap_or_default();
    Some(Pidfile { pid, port, socket_dir, status })
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &str = "4711\n/proc/self/fd/9\n1732228800\n5432\n/tmp/runreel-x\n\n  1234567     98304\nready   \n";

    #[test]
    fn a_whole_pid_file_tells_pid_port_socket_and_status() {
        let file = parse(READY).expect("whole");
        assert_eq!(file.pid.as_raw_nonzero().get(), 4711);
        assert_eq!((file.port, file.socket_dir.to_str(), file.status), (5432, Some("/tmp/runreel-x"), Status::Ready));
        assert_eq!(parse(&READY.replace("ready", "stopping")).expect("whole").status, Status::Stopping);
    }

    #[test]
    fn a_file_cut_short_is_starting_or_nothing_and_never_a_wrong_pid() {
        assert_eq!(parse("4711\n/d\n").expect("a pid").status, Status::Starting);
        for text in ["", "\n", "abc\n", "0\n", "99999999999\n", "-2147483648\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse("-4711\n").expect("standalone").pid.as_raw_nonzero().get(), 4711);
    }

    #[test]
    fn a_living_process_that_is_not_our_postmaster_is_foreign() {
        assert_eq!(owner(rustix::process::getpid(), 1), Owner::Foreign);
    }
}
