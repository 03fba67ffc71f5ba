//! The clock of a machine that jumps, forward and back, under a server and its Postgres.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use sqlx::{Connection as _, PgConnection};
use tokio::time::sleep;

use crate::{
    cluster::{Cluster, url_at},
    site::{Home, Site, is_ready},
    skew,
    stage::Stage,
};

/// The file that says how wrong the clock is, and what it says in turn, in libfaketime's format and in seconds.
const FILE: &str = "clock";
const JUMPS: [(&str, i64); 6] =
    [("+1h", 3_600), ("-1h", -3_600), ("+30d", 30 * 86_400), ("-300d", -300 * 86_400), ("+60s", 60), ("+0s", 0)];
/// How far a clock that is read later may be from what it should be, seconds.
const LATER: i64 = 5;

/// A server, and its Postgres, with the clock that a file says, and a tree of runs.
pub(crate) async fn stage(program: &Path, runs: usize, seed: u64) -> anyhow::Result<Stage> {
    let library = skew::library().context(skew::MISSING)?;
    let mut site = Site::new()?;
    let file = site.file(FILE);
    std::fs::write(&file, "+0s")?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is no text");
    let (library, file) = (text(&library)?, text(&file)?);
    let env = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME_TIMESTAMP_FILE", file.as_str()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let cluster = Cluster::create_with(&site.file("cluster"), None, &env).await?;
    site.lives_on(cluster.options());
    let homes = vec![Home::Shared(url_at(cluster.address()))];
    let mut stage = Stage::on(program, site, homes, runs, seed, (&[], &env)).await?;
    stage.cluster = Some(cluster);
    Ok(stage)
}

/// Lets it jump, and leaves it there for so long.
pub(crate) async fn jump(stage: &Stage, number: usize, lasts: Duration) -> anyhow::Result<()> {
    let (name, seconds) = JUMPS[number % JUMPS.len()];
    std::fs::write(stage.site.file(FILE), name)?;
    let mut database = PgConnection::connect_with(&stage.site.database()?).await?;
    let wrong = "select extract(epoch from clock_timestamp())::bigint - $1";
    let wrong: i64 = sqlx::query_scalar(wrong).bind(chrono::Utc::now().timestamp()).fetch_one(&mut database).await?;
    database.close().await?;
    ensure!((wrong - seconds).abs() < LATER, "the clock is wrong by {wrong} s, not by {seconds}");
    sleep(lasts).await;
    ensure!(is_ready(stage.servers[0].address).await, "the server is not ready");
    Ok(())
}
