//! How long the questions of `docs/sql.md` take on a large log.
//!
//! `cargo bench --bench sql` starts an embedded Postgres of its own, makes a log of a million events there (`events.sql`:
//! the same shape each time, over the 90 days before the last full hour), and asks each question as `runreel sql` does:
//! once, then three times more for the median, and three times as a reader of one principal's rows. Then it adds one run
//! of another shape (`heavy.sql`) and asks again what reads starts and ends. `--keep DIR` leaves the log in a folder,
//! without a second heavy run when it finds it there again. Every question is asked of the log only; nothing here touches a server's data.
//!
//! Start reading at [`run`].

#![expect(clippy::disallowed_methods, reason = "the environment and clocks of a program outside the server")]

mod questions;

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Parser;
use runreel::{
    database::Database,
    domain::principal::OwnerId,
    postgres::{Cluster, Options},
    store::{
        Settings, Store,
        query::{self, READER, Reader, Table},
    },
};
use sqlx::{Connection as _, PgConnection};

use crate::questions::{Question, questions};

/// Measures the questions of the SQL guide.
#[derive(Debug, Parser)]
struct Args {
    /// About how many events the log is to have.
    #[arg(long, default_value_t = 1_000_000)]
    events: u32,
    /// A folder for the log, which is used again when it holds one.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Views read from one end of the log to the other, which no question of the guide does.
const WHOLE: [(&str, &str); 4] = [
    ("every tool call of the log", "select name, count(*), avg(duration_ms) from tool_calls group by name"),
    ("every span of the log", "select kind, count(*), avg(duration_ms) from spans group by kind"),
    ("every number of tokens in the log", "select agent, kind, sum(tokens) from token_usage group by 1, 2"),
    ("every message of the log", "select count(*), sum(length(text)) from messages"),
];

/// Of single runs: the one with many starts that never end, and one that is like most.
const HEAVY: [(&str, &str); 4] = [
    (
        "that run's spans",
        "select count(*), count(end_seq) from spans where run_id = (select run_id from runs where agent = 'heavy')",
    ),
    (
        "that run's tool calls",
        "select count(*), count(end_seq) from tool_calls where run_id = (select run_id from runs where agent = 'heavy')",
    ),
    ("another run's spans", "select * from spans where run_id = (select min(run_id::text)::uuid from runs)"),
    ("another run's tool calls", "select * from tool_calls where run_id = (select min(run_id::text)::uuid from runs)"),
];

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&args)).map(|()| ExitCode::SUCCESS)
}

async fn run(args: &Args) -> anyhow::Result<()> {
    let scratch =
        tempfile::Builder::new().prefix("runreel-sql-").permissions(fs::Permissions::from_mode(0o711)).tempdir()?;
    let data_dir = args.keep.clone().unwrap_or_else(|| scratch.path().join("data"));
    let options = Options { data_dir: data_dir.clone(), pg_bin: None, path_env: std::env::var_os("PATH") };
    let cluster = Cluster::start(options).await?;
    let done = measure(args, &data_dir).await;
    cluster.stop(runreel::postgres::STOP_MAX).await?;
    done
}

async fn measure(args: &Args, data_dir: &std::path::Path) -> anyhow::Result<()> {
    let database = Database::running(data_dir).context("the cluster has just been started")?;
    let settings = Settings::few(database.options.clone());
    let store = Store::connect(settings).await?;
    query::enable_reader_login(&database.options).await?;
    let mut owner = PgConnection::connect_with(&database.options).await?;
    fill(&mut owner, args.events).await?;
    let told = describe(&mut owner).await?;
    let role = query::scoped_reader(&database.options, &principal(0), true).await?;
    let reader =
        |role: &str| Reader { options: database.reader(role), role: role.to_owned(), timeout: Duration::from_mins(5) };
    let (all, one) = (reader(READER), reader(&role));
    let named =
        questions().into_iter().map(|Question { number, title, sql }| (number, format!("{number}. {title}"), sql));
    let whole = || WHOLE.map(|(name, sql)| (0, name.to_owned(), sql));
    let insights = insights().into_iter().map(|(name, sql)| (0, name.to_owned(), sql));
    let ordinary: Vec<_> = named.chain(insights).chain(whole()).collect();
    tell(&told, &ordinary, &all, &one).await?;
    burden(&mut owner).await?;
    let told = format!(
        "\nThe same beside one run of 200000 events with 5000 calls that never end: {}",
        describe(&mut owner).await?
    );
    let starts = ordinary.into_iter().filter(|(number, ..)| [1, 4, 9, 11, 18].contains(number)).chain(whole());
    let heavy: Vec<_> = starts.chain(HEAVY.map(|(name, sql)| (0, name.to_owned(), sql))).collect();
    tell(&told, &heavy, &all, &one).await?;
    owner.close().await?;
    store.close().await;
    Ok(())
}

/// Asks all of it, and writes a table of the times.
async fn tell(told: &str, asks: &[(usize, String, &str)], all: &Reader, one: &Reader) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{told}\n\n| question | first | median of 3 | one principal, median of 3 |\n|---|---|---|---|")?;
    for (_, name, sql) in asks {
        let first = asked(all, sql).await?;
        let (all, one) = (median(all, sql).await?, median(one, sql).await?);
        writeln!(out, "| {name} | {} ms | {} ms | {} ms |", first.as_millis(), all.as_millis(), one.as_millis())?;
    }
    Ok(())
}

/// The queries of the guide's section on insights: name and SQL.
fn insights() -> Vec<(&'static str, &'static str)> {
    let guide = include_str!("../../docs/sql.md");
    let (_, guide) = guide.split_once("\n## Insights\n").expect("the guide has insights");
    let insight = |block: &'static str| {
        let (name, rest) = block.split_once('`')?;
        let (_, rest) = rest.split_once("```sql\n")?;
        Some((name, rest.split_once("\n```")?.0))
    };
    guide.split("\n**`").skip(1).filter_map(insight).collect()
}

/// One of the four owners of the log.
fn principal(number: usize) -> OwnerId {
    OwnerId::derive(b"a bench", "", &number.to_string())
}

async fn fill(owner: &mut PgConnection, events: u32) -> anyhow::Result<()> {
    let set = "select set_config($1, $2, false)";
    for number in 0..4 {
        let name = format!("bench.owner_{number}");
        sqlx::query(set).bind(name).bind(principal(number).as_str()).execute(&mut *owner).await?;
    }
    sqlx::query(set).bind("bench.events").bind(events.to_string()).execute(&mut *owner).await?;
    sqlx::raw_sql("select set_config('bench.until', date_trunc('hour', now())::text, false)")
        .execute(&mut *owner)
        .await?;
    if sqlx::query_scalar("select exists (select from store.run)").fetch_one(&mut *owner).await? {
        return Ok(());
    }
    writeln!(std::io::stderr(), "making {events} events")?;
    for statement in ["set jit = off", "set work_mem = '256MB'", include_str!("events.sql")] {
        sqlx::raw_sql(statement).execute(&mut *owner).await?;
    }
    // As autovacuum would after a while.
    sqlx::raw_sql("vacuum (analyze)").execute(&mut *owner).await?;
    Ok(())
}

/// Adds the run of the other shape, when it is not there already.
async fn burden(owner: &mut PgConnection) -> anyhow::Result<()> {
    if sqlx::query_scalar("select exists (select from store.run where agent = 'heavy')").fetch_one(&mut *owner).await? {
        return Ok(());
    }
    for statement in ["begin", include_str!("heavy.sql"), "commit", "vacuum (analyze)"] {
        sqlx::raw_sql(statement).execute(&mut *owner).await?;
    }
    Ok(())
}

/// What was asked, and where.
async fn describe(owner: &mut PgConnection) -> anyhow::Result<String> {
    let (events, runs, size, version): (i64, i64, String, String) = sqlx::query_as(
        "select (select count(*) from store.run_event), (select count(*) from store.run),
            (select pg_size_pretty(sum(pg_total_relation_size(inhrelid))) from pg_inherits
             where inhparent = 'store.run_event'::regclass),
            current_setting('server_version')",
    )
    .fetch_one(owner)
    .await?;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = load.split(' ').next().unwrap_or("unknown");
    Ok(format!(
        "{events} events of {runs} runs, {size} with indexes; Postgres {version}; {cores} processors, load {load}"
    ))
}

async fn asked(reader: &Reader, sql: &str) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let done = query::ask(reader, sql.to_owned(), &mut Table::default()).await;
    done.map_err(|error| anyhow::anyhow!("{error:?}\n{sql}"))?;
    Ok(began.elapsed())
}

async fn median(reader: &Reader, sql: &str) -> anyhow::Result<Duration> {
    let mut samples = [asked(reader, sql).await?, asked(reader, sql).await?, asked(reader, sql).await?];
    samples.sort_unstable();
    Ok(samples[1])
}
