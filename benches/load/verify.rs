//! The verification of a whole log.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::Value;

use crate::{emit, server::Server};

/// Runs in which the events are.
const RUNS: usize = 100;

/// Fills a log.
pub(crate) async fn fill(server: &Server, events: usize) -> anyhow::Result<()> {
    for _ in 0..RUNS {
        emit::fill(server, events / RUNS).await?;
    }
    Ok(())
}

/// Verifies all that a server has; also says how many events that were.
pub(crate) fn verify(program: &Path, data_dir: &Path) -> anyhow::Result<(Duration, u64)> {
    let began = Instant::now();
    let mut command = Command::new(program);
    command.args(["verify", "--all", "--json", "--data-dir"]).arg(data_dir).env_remove("DATABASE_URL");
    let said = command.output()?;
    let took = began.elapsed();
    anyhow::ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
    let found: Value = serde_json::from_slice(&said.stdout)?;
    Ok((took, found["events"].as_u64().context("no number of events")?))
}
