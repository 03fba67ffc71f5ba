//! One postmaster, a child process or adopted: waiting for its end, and stopping it.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::error::Error;
use super::pidfile::{self, Owner};

/// After SIGQUIT the postmaster gives its children 5 s before it kills them.
const IMMEDIATE_STOP_MAX: Duration = Duration::from_secs(10);
/// An adopted postmaster is not a child process, so its end must be polled for.
const POLL_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Postmaster {
    pub(super) pid: Pid,
    cluster_inode: u64,
    child: Option<Child>,
}

impl Postmaster {
    pub(super) fn adopted(pid: Pid, cluster_inode: u64) -> Self {
        Self { pid, cluster_inode, child: None }
    }

    pub(super) fn spawned(pid: Pid, cluster_inode: u64, child: Child) -> Self {
        Self { pid, cluster_inode, child: Some(child) }
    }

    /// Completes when the process has ended. Cancel-safe.
    pub(super) async fn ended(&mut self) {
        if let Some(child) = &mut self.child {
            // An error means that it was reaped elsewhere, so it has ended too.
            let _ = child.wait().await;
            return;
        }
        while pidfile::owner(self.pid, self.cluster_inode) == Owner::Ours {
            sleep(POLL_EVERY).await;
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        // Checked right before the signal: an adopted postmaster may have ended and its pid been reused.
        if pidfile::owner(self.pid, self.cluster_inode) == Owner::Ours
            && let Err(error) = kill_process(self.pid, signal)
        {
            warn!(pid = self.pid.as_raw_nonzero(), %error, "cannot signal Postgres");
        }
    }

    /// A fast shutdown writes a checkpoint; if it does not finish within `max`, the next start recovers.
    pub(super) async fn stop(&mut self, max: Duration) -> Result<(), Error> {
        self.signal(Signal::INT);
        // A suspended process would otherwise never handle SIGINT.
        self.signal(Signal::CONT);
        if timeout(max, self.ended()).await.is_ok() {
            return Ok(());
        }
        warn!(pid = self.pid.as_raw_nonzero(), "Postgres is slow to stop; stopping it immediately");
        self.end_at_once().await
    }

    /// As safe as a crash: the next start recovers.
    pub(super) async fn end_at_once(&mut self) -> Result<(), Error> {
        self.signal(Signal::QUIT);
        let ended = timeout(IMMEDIATE_STOP_MAX, self.ended()).await;
        ended.map_err(|_| Error::StopTimeout { pid: self.pid.as_raw_nonzero().get() })
    }
}
