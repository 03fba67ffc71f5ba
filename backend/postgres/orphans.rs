//! Backends that outlive a killed postmaster: until they have exited, Postgres rightly refuses to start.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use tracing::warn;

/// Kills the server processes that work in this cluster. Call it only when its postmaster is known to be dead.
///
/// Most exit by themselves; one in a long statement does not notice, and a suspended one cannot. Killing is safe:
/// shared memory is created again, and recovery starts from the WAL regardless of what they did.
/// Without `/proc` this does nothing, and the start waits for them.
pub(super) fn end(cluster: &Path) {
    let Ok(ours) = fs::metadata(cluster) else {
        return;
    };
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        // A server process has this title and the cluster as its working directory; a shell there has another title.
        let title = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let here = fs::metadata(entry.path().join("cwd"))
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == (ours.dev(), ours.ino()));
        if here && title.starts_with(b"postgres: ") {
            warn!(pid = pid.as_raw_nonzero(), "killing a backend that outlived its Postgres");
            // It may have exited in between.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
