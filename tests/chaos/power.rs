//! The machine of the database loses its power: what was acknowledged was on its disk.

use std::{fs, time::Duration};

use anyhow::Context as _;
use rustix::process::{Signal, kill_process};
use tokio::time::sleep;

use crate::{
    cluster::{Cluster, url_at},
    disk::Disk,
    site::{Site, processes_of},
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

    /// Everything stops at once; then the machine is started again.
    pub(crate) async fn lose_power(&self) -> anyhow::Result<()> {
        // It starts no further process, and the file that names it cannot be read afterwards.
        let postmaster = self.cluster.postmaster().context("Postgres does not run")?;
        kill_process(postmaster, Signal::STOP)?;
        let processes = processes_of(Some(postmaster));
        self.disk.lose_power().await?;
        for pid in &processes {
            let _ = kill_process(*pid, Signal::KILL);
        }
        let runs = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
        while processes.iter().any(|pid| runs(pid.as_raw_nonzero().get())) {
            sleep(LOOK_EVERY).await;
        }
        self.disk.repair().await?;
        let _ = fs::remove_file(self.cluster.dir.join("postmaster.pid"));
        self.cluster.start().await
    }
}
