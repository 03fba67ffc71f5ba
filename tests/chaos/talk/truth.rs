//! What is left of a chat: its runs and their events from the public views, and the log of its session.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use sqlx::PgConnection;
use tokio::time::{Instant, sleep};

use super::judge::{History, Run, Said, Told};
use crate::wire;

/// Longest wait until nothing is pending.
const SETTLED_MAX: Duration = Duration::from_secs(30);

/// Waits until there is no job, no waiting message and no pending reply.
pub(crate) async fn settled(database: &mut PgConnection) -> anyhow::Result<()> {
    let count = "select (select count(*) from store.job) + (select count(*) from store.inbound where state <> 'done')
                      + (select count(*) from store.reply where done_at is null)";
    let began = Instant::now();
    loop {
        let left: i64 = sqlx::query_scalar(count).fetch_one(&mut *database).await?;
        if left == 0 {
            return Ok(());
        }
        ensure!(began.elapsed() < SETTLED_MAX, "{left} jobs, messages and answers are left behind");
        sleep(Duration::from_millis(20)).await;
    }
}

type Columns = (String, Option<String>, Option<String>, String, Option<String>);

pub(super) async fn read(
    database: &mut PgConnection,
    address: SocketAddr,
    number: usize,
    said: Vec<Said>,
) -> anyhow::Result<History> {
    let thread = format!("web_{number}");
    let mut history = History { said, ..History::default() };
    let columns = "select r.run_id::text, r.parent_run_id::text, r.agent, r.status, r.output::text from runreel.runs r";
    let of_thread =
        format!("{columns} join runreel.runs root on root.run_id = r.root_run_id where root.thread_id = $1");
    let mut rows: Vec<Columns> =
        sqlx::query_as(sqlx::AssertSqlSafe(of_thread)).bind(&thread).fetch_all(&mut *database).await?;
    let routers: Vec<&str> = history.said.iter().map(|said| said.router_run_id.as_str()).collect();
    let of_router = format!("{columns} where r.run_id::text = any($1)");
    rows.extend(
        sqlx::query_as::<_, Columns>(sqlx::AssertSqlSafe(of_router)).bind(&routers).fetch_all(&mut *database).await?,
    );
    for (run_id, parent, agent, status, output) in rows {
        let output = output.map(|output| serde_json::from_str(&output)).transpose()?.unwrap_or(Value::Null);
        history.runs.push(Run { run_id, parent, agent: agent.unwrap_or_default(), status, output });
    }
    for run in &history.runs {
        history.told.extend(log(database, &run.run_id).await?);
    }
    let session: String = sqlx::query_scalar("select session_id from runreel.sessions where thread_id = $1")
        .bind(&thread)
        .fetch_one(database)
        .await?;
    let answer = wire::get(address, &format!("/api/sessions/{session}/log.jsonl"), &[]).await?;
    for line in answer.text().await?.lines() {
        let line: Value = serde_json::from_str(line).context("a line of the log")?;
        let member = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        history.log.push((member("role"), member("content")));
    }
    Ok(history)
}

/// The log of a run.
pub(crate) async fn log(database: &mut PgConnection, run_id: &str) -> anyhow::Result<Vec<Told>> {
    let told: Vec<(i64, String, Option<String>, Option<String>)> = sqlx::query_as(
        "select seq, type, span_id, event_id from runreel.run_events where run_id = $1::uuid order by seq",
    )
    .bind(run_id)
    .fetch_all(database)
    .await?;
    let told = told.into_iter();
    Ok(told.map(|(seq, kind, span, event_id)| Told { run_id: run_id.to_owned(), seq, kind, span, event_id }).collect())
}
