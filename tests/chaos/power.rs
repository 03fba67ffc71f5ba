//! The machine of the database loses its power, or has no room left: what was acknowledged was on its disk.

use std::{fs, time::Duration};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::{
    cluster::{Cluster, url_at},
    disk::Disk,
    site::{Site, processes_of, state_of},
};

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A Postgres whose files and write-ahead log are on one disk. Fields are dropped in this order.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cluster: Cluster,
    disk: Disk,
}

impl Machine {
    pub(crate) async fn start(site: &Site) -> anyhow::Result<Self> {
        let disk = Disk::mount(site).await?;
        let cluster = Cluster::create(&disk.folder.join("cluster"), None).await?;
        Ok(Self { cluster, disk })
    }

    pub(crate) fn url(&self) -> String {
        url_at(self.cluster.address())
    }

    /// Neither tables nor the write-ahead log get any more room.
    pub(crate) fn fill(&self) -> anyhow::Result<()> {
        self.disk.fill()
    }

    pub(crate) fn free(&self) -> anyhow::Result<()> {
        self.disk.free()
    }

    /// Starts Postgres if it has ended, as it does when it cannot write its log.
    pub(crate) async fn keep_up(&self) -> anyhow::Result<()> {
        if self.cluster.postmaster().is_none() { self.cluster.start().await } else { Ok(()) }
    }

    /// Everything stops at once; then the machine is started again.
    pub(crate) async fn lose_power(&self) -> anyhow::Result<()> {
        // Once it is stopped it starts no further process, and the file that names it cannot be read afterwards.
        let postmaster = self.cluster.postmaster().context("Postgres does not run")?;
        kill_process(postmaster, Signal::STOP)?;
        wait_until(&[postmaster], |state| matches!(state, None | Some('T' | 'Z' | 'X'))).await;
        let processes = processes_of(Some(postmaster));
        self.disk.lose_power().await?;
        for pid in &processes {
            let _ = kill_process(*pid, Signal::KILL);
        }
        // The kernel closes a process's files before it makes a zombie of it, and only then is the disk free.
        wait_until(&processes, |state| matches!(state, None | Some('Z' | 'X'))).await;
        self.disk.repair().await?;
        let _ = fs::remove_file(self.cluster.dir.join("postmaster.pid"));
        self.cluster.start().await
    }
}

async fn wait_until(processes: &[Pid], is_it: impl Fn(Option<char>) -> bool) {
    while !processes.iter().all(|pid| is_it(state_of(*pid))) {
        sleep(LOOK_EVERY).await;
    }
}
