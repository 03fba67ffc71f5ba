//! The same work without a server: clients of the same Postgres, on a table of the same shape with the same indexes.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures::TryStreamExt as _;
use runreel::{
    clock::{Clock, IdSource},
    database::Database,
};
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::time::{Instant as Moment, sleep_until};
use uuid::Uuid;

use crate::{emit::payload, stats::percentile};

const INSERT: &str = "insert into bare.run_event (run_id, seq, lane, position, owner_id, type, role, at, payload)
    values ($1, $2, 0, $3, 'f6293ee4e1a4ef6672fff07cfa5f52a2ecce52eff5fee14560ac2cb4461f7a67', 'custom.load', 'agent',
            now(), $4::json)";
const UNNEST: &str = "insert into bare.run_event (run_id, seq, lane, position, owner_id, type, role, at, payload)
    select $1, e.seq, 0, e.position, 'f6293ee4e1a4ef6672fff07cfa5f52a2ecce52eff5fee14560ac2cb4461f7a67', 'custom.load',
           'agent', now(), e.payload::json
    from unnest($2::bigint[], $3::bigint[], $4::text[]) as e (seq, position, payload)";

/// The embedded cluster takes 100 connections, and the server keeps its own.
pub(crate) const CLIENTS_MAX: usize = 64;
/// Connections are made in this time, before the clock starts.
const CONNECT_MAX: Duration = Duration::from_millis(500);

/// When clients work.
#[derive(Clone, Copy, Debug)]
struct Window {
    began: Moment,
    until: Moment,
}

/// Clients of the database below the server.
#[derive(Clone, Debug)]
pub(crate) struct Bare {
    options: PgConnectOptions,
    position: Arc<AtomicI64>,
}

impl Bare {
    /// Makes the table. `like … including all` takes columns, defaults, checks and indexes, and no trigger.
    pub(crate) async fn prepare(data_dir: &Path) -> anyhow::Result<Self> {
        let options = Database::running(data_dir).context("the database does not run")?.options;
        let mut connection = PgConnection::connect_with(&options).await?;
        sqlx::raw_sql(
            "create schema bare;
             create table bare.run_event (like store.run_event including all) partition by range (run_id);
             create table bare.every partition of bare.run_event default;",
        )
        .execute(&mut connection)
        .await?;
        Ok(Self { options, position: Arc::default() })
    }

    pub(crate) async fn version(&self) -> anyhow::Result<String> {
        let mut connection = self.connect().await?;
        Ok(sqlx::query_scalar("select current_setting('server_version')").fetch_one(&mut connection).await?)
    }

    async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect_with(&self.options).await?)
    }

    /// Rows per second of `clients`, each inserting and committing one row at a time.
    pub(crate) async fn singles(&self, clients: usize, duration: Duration) -> anyhow::Result<f64> {
        self.all(clients, duration, Self::insert_singles).await
    }

    /// Rows per second of `clients`, each inserting and committing a batch at a time.
    pub(crate) async fn batches(&self, clients: usize, batch: usize, duration: Duration) -> anyhow::Result<f64> {
        self.all(clients, duration, move |bare, window| bare.insert_batches(batch, window)).await
    }

    async fn all<F>(
        &self,
        clients: usize,
        duration: Duration,
        client: impl Fn(Self, Window) -> F,
    ) -> anyhow::Result<f64>
    where
        F: Future<Output = anyhow::Result<u64>> + Send + 'static,
    {
        let mut counting = self.connect().await?;
        let count = "select count(*) from bare.run_event";
        let before: i64 = sqlx::query_scalar(count).fetch_one(&mut counting).await?;
        let began = Moment::now() + CONNECT_MAX;
        let window = Window { began, until: began + duration };
        let loops: Vec<_> = (0..clients).map(|_| tokio::spawn(client(self.clone(), window))).collect();
        let mut rows = 0;
        for each in loops {
            rows += each.await??;
        }
        let elapsed = began.elapsed();
        let after: i64 = sqlx::query_scalar(count).fetch_one(&mut counting).await?;
        anyhow::ensure!(
            after - before == i64::try_from(rows)?,
            "{rows} rows were inserted and {} are there",
            after - before
        );
        Ok(rows as f64 / elapsed.as_secs_f64())
    }

    async fn insert_singles(self, window: Window) -> anyhow::Result<u64> {
        let (mut connection, run_id, payload) = (self.connect().await?, new_run(), payload());
        let mut seq: i64 = 0;
        sleep_until(window.began).await;
        while Moment::now() < window.until {
            seq += 1;
            let position = self.position.fetch_add(1, Ordering::Relaxed);
            let query = sqlx::query(INSERT).bind(run_id).bind(seq).bind(position).bind(&payload);
            query.execute(&mut connection).await?;
        }
        Ok(seq.unsigned_abs())
    }

    async fn insert_batches(self, batch: usize, window: Window) -> anyhow::Result<u64> {
        let (mut connection, run_id) = (self.connect().await?, new_run());
        let (size, payloads) = (i64::try_from(batch)?, vec![payload(); batch]);
        let mut seq: i64 = 0;
        sleep_until(window.began).await;
        while Moment::now() < window.until {
            let position = self.position.fetch_add(size, Ordering::Relaxed);
            let seqs: Vec<i64> = (seq + 1..=seq + size).collect();
            let positions: Vec<i64> = (position..position + size).collect();
            let query = sqlx::query(UNNEST).bind(run_id).bind(seqs).bind(positions).bind(&payloads);
            query.execute(&mut connection).await?;
            seq += size;
        }
        Ok(seq.unsigned_abs())
    }

    /// Half and 99 of 100 insert-and-commits at a fixed rate.
    pub(crate) async fn latency(&self, per_second: u32, duration: Duration) -> anyhow::Result<(Duration, Duration)> {
        let (mut connection, run_id, payload) = (self.connect().await?, new_run(), payload());
        let (began, step) = (Moment::now(), Duration::from_secs(1) / per_second);
        let (mut due, mut waits, mut seq) = (began, Vec::new(), 0_i64);
        while began.elapsed() < duration {
            sleep_until(due).await;
            seq += 1;
            let position = self.position.fetch_add(1, Ordering::Relaxed);
            let start = Moment::now();
            let query = sqlx::query(INSERT).bind(run_id).bind(seq).bind(position).bind(&payload);
            query.execute(&mut connection).await?;
            waits.push(start.elapsed());
            due = (due + step).max(Moment::now());
        }
        waits.sort_unstable();
        Ok((percentile(&waits, 500), percentile(&waits, 990)))
    }

    /// `COPY … TO STDOUT` of one run's rows: how many, how long, and how long to the first byte.
    pub(crate) async fn copy_out(&self, run_id: &str) -> anyhow::Result<(u64, Duration, Duration)> {
        let mut connection = self.connect().await?;
        let run_id: Uuid = run_id.parse()?;
        let copy = format!("copy (select * from store.run_event where run_id = '{run_id}' order by seq) to stdout");
        let (began, mut rows, mut first) = (Instant::now(), 0, None);
        let mut stream = connection.copy_out_raw(&copy).await?;
        while let Some(bytes) = stream.try_next().await? {
            first.get_or_insert_with(|| began.elapsed());
            // One message is one row.
            anyhow::ensure!(bytes.ends_with(b"\n"), "COPY sent a part of a row");
            rows += 1;
        }
        Ok((rows, began.elapsed(), first.unwrap_or_default()))
    }
}

fn new_run() -> Uuid {
    IdSource::random(Clock::System).uuid()
}
