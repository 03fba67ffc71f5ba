//! Runs the harness in its own network and mount namespaces, so that packets can be dropped and disks filled, and
//! nothing of it remains in any case: both end with the last process in them.

use std::{
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use anyhow::Context as _;

/// Passed by the harness to itself once it is isolated.
pub(crate) const FLAG: &str = "--alone";
/// Why the scenarios that need it are not run.
pub(crate) const MISSING: &str = "packets can only be dropped by root, with unshare, ip and iptables";
pub(crate) const MISSING_DISK: &str = "a disk can only be mounted by root, with unshare, mkfs.ext4 and a loop device";
const ENTER: &str = "ip link set lo up && exec \"$0\" \"$@\"";

/// Becomes the same program in its own network and mount namespaces, where that is allowed; returns where it is not.
pub(crate) fn enter() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().collect();
    if arguments.iter().any(|argument| argument == FLAG) || !may() {
        return Ok(());
    }
    let mut again = unshare();
    again.arg("sh").arg("-c").arg(ENTER).arg(std::env::current_exe()?).args(&arguments[1..]).arg(FLAG);
    Err(again.exec()).context("unshare does not start")
}

/// Whether packets can be dropped and disks be mounted here without affecting anything outside.
fn may() -> bool {
    unshare()
        .args(["sh", "-c", "ip link set lo up && iptables -w -L -n"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "--"]);
    unshare
}
