//! A standby as a read replica: whoever was told of an event reads it at once, whatever the standby does.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    cluster::{COPIES, Cluster, url_at},
    progress,
    site::{Home, Server, Site, http_client},
    stage::{END_MAX, Verdict},
    wire,
};

/// Who emits and reads at a time.
const KEEPERS: usize = 4;
/// Events of a run.
const EVENTS: u64 = 12;
/// How long the server leaves a replica alone that has failed, and a moment.
const RESTED: Duration = Duration::from_secs(6);
/// A read takes longer at most while it waits for the standby.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// What the standby does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standby {
    Follows,
    /// It receives what the primary writes, and does not show it.
    StandsStill,
    FollowsAgain,
    Gone,
    IsBack,
}

/// Reads that went to the replica, and to the primary instead.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    replica: u64,
    primary: u64,
}

pub(crate) async fn run(program: &Path, each: Duration) -> anyhow::Result<Verdict> {
    let mut site = Site::new()?;
    let primary = Cluster::create(&site.file("primary"), None).await?;
    if !primary.has(&COPIES) {
        return Ok(Verdict::cannot("this Postgres comes without pg_basebackup"));
    }
    site.lives_on(primary.options());
    let home = Home::Shared(url_at(primary.address()));
    // It makes what is copied.
    ensure!(Server::start(program, &site, home.clone(), 0, &[]).await?.terminate(END_MAX).await?.is_some());
    let standby = primary.copy(&site.file("standby"), true).await?;
    standby.start().await?;
    let replica = url_at(standby.address());
    let mut server = Server::start(program, &site, home, 1, &["--replica-url", &replica]).await?;
    let mut verdict = Verdict::default();
    for does in [Standby::Follows, Standby::StandsStill, Standby::FollowsAgain, Standby::Gone, Standby::IsBack] {
        progress(format_args!("{does:?}"))?;
        begin(does, &standby).await?;
        let before = reads(server.address).await?;
        let keepers = (0..KEEPERS).map(|_| tokio::spawn(keep(server.url(), each)));
        for keeper in keepers.collect::<Vec<_>>() {
            verdict.violations.extend(keeper.await??.into_iter().take(3).map(|wrong| format!("{does:?}: {wrong}")));
        }
        let after = reads(server.address).await?;
        let (there, instead) = (after.replica - before.replica, after.primary - before.primary);
        verdict.fact(format!("{does:?}: {there} reads of the replica, {instead} of the primary instead"));
        match does {
            Standby::Follows | Standby::FollowsAgain | Standby::IsBack => {
                verdict.require(there > 0, || format!("{does:?}: the replica was never read"));
            }
            Standby::StandsStill => verdict.require(instead > 0, || "nothing was behind".to_owned()),
            Standby::Gone => verdict.require(there == 0 && instead > 0, || "a dead replica was read".to_owned()),
        }
    }
    verdict.violations.extend(server.verify().await?);
    let status = server.terminate(END_MAX).await?;
    verdict.require(status.is_some_and(|status| status.success()), || format!("the server ended with {status:?}"));
    verdict.violations.extend(server.panics());
    Ok(verdict)
}

async fn begin(does: Standby, standby: &Cluster) -> anyhow::Result<()> {
    let statement = match does {
        Standby::Follows => return Ok(()),
        Standby::Gone => return standby.crash().await,
        Standby::IsBack => {
            standby.start().await?;
            sleep(RESTED).await;
            return Ok(());
        }
        Standby::StandsStill => "select pg_wal_replay_pause()",
        Standby::FollowsAgain => "select pg_wal_replay_resume()",
    };
    let mut connection = standby.connect().await?;
    sqlx::raw_sql(statement).execute(&mut connection).await?;
    Ok(())
}

async fn reads(address: SocketAddr) -> anyhow::Result<Reads> {
    let metrics = wire::get(address, "/metrics", &[]).await?.text().await?;
    let count = |from: &str| {
        let name = format!("runreel_replica_reads_total{{from=\"{from}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(Ok(0), str::parse)
    };
    Ok(Reads { replica: count("replica")?, primary: count("primary")? })
}

/// Emits events one by one, and reads each as soon as it was acknowledged, in every way; returns what was not as it should be.
async fn keep(url: String, each: Duration) -> anyhow::Result<Vec<String>> {
    let (client, end, mut wrong) = (http_client()?, Instant::now() + each, Vec::new());
    let ask = async |method: Method, path: &str, body: Value| {
        let began = Instant::now();
        let asked = client.request(method, format!("{url}{path}")).json(&body).send().await?;
        let (status, text) = (asked.status(), asked.text().await?);
        ensure!(matches!(status, StatusCode::OK | StatusCode::CREATED), "{path}: {status} {text}");
        ensure!(began.elapsed() < ANSWER_MAX, "{path}: answered after {:?}", began.elapsed());
        anyhow::Ok(text)
    };
    while Instant::now() < end {
        let run: Value = serde_json::from_str(&ask(Method::POST, "/api/runs", json!({ "agent": "keeper" })).await?)?;
        let id = run["run_id"].as_str().context("a run without an id")?;
        for number in 0..EVENTS {
            let is_last = number + 1 == EVENTS;
            let event = if is_last { json!({ "type": "run.completed" }) } else { json!({ "type": "log.info" }) };
            let ack: Value = serde_json::from_str(&ask(Method::POST, &format!("/api/runs/{id}/events"), event).await?)?;
            let last = ack["last_seq"].as_u64().context("an answer without a seq")?;
            let mut is_there = |what: &str, read: Option<u64>| {
                if read.is_none_or(|read| read < last) {
                    wrong.push(format!("seq {last} was acknowledged, and {what} has {read:?}"));
                }
            };
            let page = ask(Method::GET, &format!("/api/runs/{id}/events?after={}", last - 1), Value::Null).await?;
            let page: Value = serde_json::from_str(&page)?;
            is_there("a page", page["events"][0]["seq"].as_u64());
            let export = ask(Method::GET, &format!("/api/runs/{id}/export"), Value::Null).await?;
            is_there("an export", Some(export.lines().count() as u64 - 2));
            if number % 4 == 0 || is_last {
                let query = format!("select max(seq) from run_events where run_id = '{id}'");
                let rows: Value =
                    serde_json::from_str(&ask(Method::POST, "/api/sql", json!({ "query": query })).await?)?;
                is_there("a query", rows["rows"][0][0].as_u64());
            }
        }
    }
    Ok(wrong)
}
