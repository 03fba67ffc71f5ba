//! What the database and the ledger have of a run, read with SQL and not through the engine.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::Context as _;
use serde::Deserialize;
use sqlx::PgConnection;
use tokio::time::{Instant, sleep};

use super::{
    child::thread_of,
    judge::{Kept, Line, Told},
};

/// The key under which the engine stores a node's update.
const UPDATE: &str = "=";
const QUIET_MAX: Duration = Duration::from_secs(20);

/// What the engine writes into the checkpoint itself.
#[derive(Debug, Deserialize)]
struct Head {
    step: u32,
    next: Vec<String>,
}

/// Waits until only we are connected: a commit that was in progress at a kill has happened or not.
pub(crate) async fn quiet(database: &mut PgConnection) -> anyhow::Result<()> {
    let count =
        "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()";
    let began = Instant::now();
    loop {
        let others: i64 = sqlx::query_scalar(count).fetch_one(&mut *database).await?;
        if others == 0 {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < QUIET_MAX, "{others} connections outlive their process");
        sleep(Duration::from_millis(2)).await;
    }
}

type Columns = (i64, String, String, Option<String>, Option<String>, Option<String>, Option<String>, String);

pub(crate) async fn told(database: &mut PgConnection, run_id: &str) -> anyhow::Result<Vec<Told>> {
    let rows: Vec<Columns> = sqlx::query_as(
        "select seq, type, role, agent, span_id, parent_span_id, event_id, payload::text from store.run_event
         where run_id = $1::uuid order by seq",
    )
    .bind(run_id)
    .fetch_all(database)
    .await?;
    rows.into_iter()
        .map(|(seq, kind, role, agent, span, parent, event_id, payload)| {
            let payload = serde_json::from_str(&payload.replace(run_id, "RUN"))?;
            Ok(Told { seq, kind, role, agent, span, parent, event_id, payload })
        })
        .collect()
}

pub(crate) async fn kept(database: &mut PgConnection, run_id: &str) -> anyhow::Result<Kept> {
    let checkpoints: Vec<(String, String)> = sqlx::query_as(
        "select checkpoint_id, convert_from(b, 'UTF8') from store.checkpoint join store.thread using (thread_no)
         where thread_id = $1 order by checkpoint_id",
    )
    .bind(thread_of(run_id))
    .fetch_all(&mut *database)
    .await?;
    let memos: Vec<(String, String)> = sqlx::query_as(
        "select checkpoint_id, task_id from store.pending_write join store.thread using (thread_no) where thread_id = $1",
    )
    .bind(thread_of(run_id))
    .fetch_all(&mut *database)
    .await?;
    let heads: BTreeMap<String, Head> = checkpoints
        .into_iter()
        .map(|(id, head)| Ok((id, serde_json::from_str(&head)?)))
        .collect::<anyhow::Result<_>>()?;
    let last = heads.values().last().map(|head| head.step);
    let span = |head: &Head, node: &str| format!("s{}.{node}", head.step + 1);
    let mut kept = Kept { step: last, ..Kept::default() };
    for head in heads.values().filter(|head| Some(head.step) < last) {
        kept.ended.extend(head.next.iter().map(|node| span(head, node)));
    }
    for (checkpoint, task) in memos {
        let head = heads.get(&checkpoint).context("something is remembered of no checkpoint")?;
        match task.split_once('/').context("a task without a key")? {
            (node, UPDATE) => _ = kept.ended.insert(span(head, node)),
            (node, key) => _ = kept.memos.insert((span(head, node), key.to_owned())),
        }
    }
    for told in told(database, run_id).await? {
        match (told.kind.as_str(), told.span) {
            ("step.completed", Some(span)) => _ = kept.told.insert(span),
            ("state.checkpointed", _) => {
                let step = told.payload["step"].as_u64().and_then(|step| u32::try_from(step).ok());
                kept.told_step = kept.told_step.max(step);
            }
            _ => {}
        }
    }
    Ok(kept)
}

/// The channels of the last checkpoint, each with its exact bytes.
pub(crate) async fn state(database: &mut PgConnection, run_id: &str) -> anyhow::Result<String> {
    let channels: Vec<(String, String)> = sqlx::query_as(
        "select b.channel, convert_from(b.b, 'UTF8')
         from (select thread_no, ns, versions from store.checkpoint join store.thread using (thread_no)
               where thread_id = $1 order by checkpoint_id desc limit 1) c
         cross join lateral json_each(c.versions) v (channel, version)
         join store.blob b on b.thread_no = c.thread_no and b.ns = c.ns and b.channel = v.channel
                          and b.version = v.version::text
         order by b.channel",
    )
    .bind(thread_of(run_id))
    .fetch_all(database)
    .await?;
    let members: Vec<String> = channels.into_iter().map(|(name, bytes)| format!("\"{name}\":{bytes}")).collect();
    Ok(format!("{{{}}}", members.join(",")))
}

pub(crate) fn ledger(path: &Path) -> anyhow::Result<Vec<Line>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().context("a line of the ledger breaks off").map(str::to_owned);
            Ok(Line { attempt: word()?.parse()?, span: word()?, what: word()? })
        })
        .collect()
}
