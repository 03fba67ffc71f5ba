//! The ground truth: the rows in Postgres, and the lines the server returns for them.

use anyhow::ensure;
use serde::Deserialize;
use sqlx::{Connection as _, PgConnection};

use crate::{
    judge::{Row, Table, print_of},
    wire,
};

/// The database behind a scenario, for the harness's own SQL.
pub(crate) async fn connect(site: &crate::site::Site) -> anyhow::Result<PgConnection> {
    Ok(PgConnection::connect_with(&site.database()?).await?)
}

/// Reads every run twice: with SQL and from the page endpoint. Both must have the same rows.
pub(crate) async fn read(
    site: &crate::site::Site,
    address: std::net::SocketAddr,
    run_ids: &[String],
) -> anyhow::Result<Table> {
    let mut database = connect(site).await?;
    let mut table = Table::new();
    for run_id in run_ids {
        let rows: Vec<(i64, Option<String>, String)> = sqlx::query_as(
            "select seq, event_id, payload::text from store.run_event where run_id = $1::uuid order by seq",
        )
        .bind(run_id)
        .fetch_all(&mut database)
        .await?;
        let path = format!("/api/runs/{run_id}/events");
        let answer = wire::get(address, &path, &["accept: application/x-ndjson".to_owned()]).await?;
        ensure!(answer.status == 200, "{path} answered {}", answer.status);
        let text = answer.text().await?;
        ensure!(text.lines().count() == rows.len(), "{path} tells {} of {} rows", text.lines().count(), rows.len());
        let mut run = Vec::with_capacity(rows.len());
        for ((seq, event_id, payload), line) in rows.into_iter().zip(text.lines()) {
            run.push(row(u64::try_from(seq)?, event_id, &payload, line)?);
        }
        table.push(run);
    }
    database.close().await?;
    Ok(table)
}

fn row(seq: u64, event_id: Option<String>, payload: &str, line: &str) -> anyhow::Result<Row> {
    #[derive(Deserialize)]
    struct Told {
        seq: u64,
        event_id: Option<String>,
    }
    let told: Told = serde_json::from_str(line)?;
    let same = told.seq == seq && told.event_id == event_id && line.ends_with(&format!("\"payload\":{payload}}}"));
    ensure!(same, "the page endpoint tells {line} of seq {seq} with the payload {payload}");
    Ok(Row { seq, event_id, payload: print_of(payload), print: print_of(line) })
}
