//! What a step of the engine costs: a graph of many steps whose nodes do nothing, with less and more durability.
//!
//! `cargo bench --bench engine` starts an embedded Postgres of its own and the program's parts in this process. The rows
//! are measured in turn, so that a noisy minute meets all of them, beside bare insert-and-commits on the same cluster. Each
//! figure is the median of several rounds with their range. A round that took another number of steps, or that left another
//! number of events or checkpoints behind, is an error and not a figure.
//!
//! Start reading at [`run`]; [`steps`] is one round, [`parts`] are what it is given.

#![expect(clippy::disallowed_methods, reason = "the environment and clocks of a program outside the server")]

mod parts;

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use clap::Parser;
use runreel::{
    app::App,
    config::{Secrets, ServeArgs},
    emitters::{
        emitter::Emitter,
        identity::{NullEmitter, SupervisorEmitter},
    },
    engine::{Durability, Ended, Limits, RunEnv},
};
use sqlx::{Connection as _, PgConnection};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::parts::{Count, Ground, Waits, idle, lock};

/// Measures the engine.
#[derive(Debug, Parser)]
struct Args {
    /// Steps of a graph.
    #[arg(long, default_value_t = 1_000)]
    steps: u32,
    /// Rounds; each measures every row once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A short look that everything works; its figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    serve: ServeArgs,
}

/// How durable a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    InMemory,
    Durable,
    DurableWithEvents,
}

/// The samples of one row: p50 and p99 of each round.
#[derive(Debug)]
struct Row {
    name: &'static str,
    halves: Vec<Duration>,
    most: Vec<Duration>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&args)).map(|()| ExitCode::SUCCESS)
}

async fn run(args: &Args) -> anyhow::Result<()> {
    let (count, rounds) = if args.quick { (50, 1) } else { (args.steps, args.rounds) };
    let dir =
        tempfile::Builder::new().prefix("runreel-engine-").permissions(fs::Permissions::from_mode(0o711)).tempdir()?;
    let data = dir.path().join("data");
    let flags = ["engine", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().context("an odd folder")?];
    let app = App::start(&Flags::try_parse_from(flags)?.serve, &Secrets::default()).await?;
    let ground = Ground::new(&app);
    let mut bare = PgConnection::connect_with(&app.database().options).await?;
    sqlx::raw_sql("create schema bare; create table bare.entry (n bigint primary key, payload text not null)")
        .execute(&mut bare)
        .await?;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    writeln!(std::io::stdout(), "{cores} processors, load {}, {count} steps, {rounds} rounds", load.trim())?;
    let mut rows = Vec::new();
    for round in 0..rounds {
        add(&mut rows, "bare insert and commit", inserts(&mut bare, round, count).await?);
        for (name, mode) in [
            ("step, state in memory, no events", Mode::InMemory),
            ("step, durable state, no events", Mode::Durable),
            ("step, durable state and events", Mode::DurableWithEvents),
        ] {
            let (step, parts) = steps(&ground, mode, count).await?;
            add(&mut rows, name, step);
            if mode == Mode::DurableWithEvents {
                add(&mut rows, "  of it: a checkpoint", parts.checkpoints);
                add(&mut rows, "  of it: a node's update", parts.writes);
                add(&mut rows, "  of it: an emission", parts.emissions);
            }
        }
    }
    print(&rows)?;
    bare.close().await?;
    app.run(std::future::ready(())).await
}

fn add(rows: &mut Vec<Row>, name: &'static str, mut samples: Vec<Duration>) {
    samples.sort_unstable();
    if samples.is_empty() {
        return;
    }
    let at = |of_thousand: usize| samples[(samples.len() - 1) * of_thousand / 1_000];
    let index = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
        rows.push(Row { name, halves: Vec::new(), most: Vec::new() });
        rows.len() - 1
    });
    rows[index].halves.push(at(500));
    rows[index].most.push(at(990));
}

/// The time of each of so many bare inserts, every one a transaction of its own.
async fn inserts(bare: &mut PgConnection, round: usize, count: u32) -> anyhow::Result<Vec<Duration>> {
    let (mut waits, payload) = (Vec::new(), "x".repeat(300));
    for n in 0..count {
        let began = Instant::now();
        let insert = sqlx::query("insert into bare.entry (n, payload) values ($1, $2)");
        insert.bind(round as i64 * i64::from(count) + i64::from(n)).bind(&payload).execute(&mut *bare).await?;
        waits.push(began.elapsed());
    }
    Ok(waits)
}

/// One run of the graph: the time from each visit of its node to the next, and what of it went where.
async fn steps(ground: &Ground, mode: Mode, count: u32) -> anyhow::Result<(Vec<Duration>, Waits)> {
    let (context, waits) = (ground.open_run().await?, Arc::default());
    let host = ground.host(&context, &waits);
    let emitter: Arc<dyn Emitter> = match mode {
        Mode::DurableWithEvents => Arc::new(SupervisorEmitter::new(Arc::clone(&host), "bench")?.repeatable()),
        _ => Arc::new(NullEmitter),
    };
    let visits = Arc::default();
    let graph = idle(&visits, count)?;
    let durability = if mode == Mode::InMemory { Durability::Never } else { Durability::EveryStep };
    let (ids, stopwatch, cancel) = (ground.ids(), runreel::clock::monotonic(), CancellationToken::new());
    let env = RunEnv { host, emitter, ids, stopwatch, cancel, durability };
    let limits = Limits { steps_max: count + 1, ..Limits::default() };
    let ended = env.drive(&graph, limits, |_: Option<Count>| Count::default()).await?;
    ensure!(matches!(&ended, Ended::Completed(state) if state.steps == count), "the graph ended otherwise: {ended:?}");
    let (checkpoints, events) = ground.stored(&context).await?;
    let count = i64::from(count);
    let expected = match mode {
        Mode::InMemory => (0, 2),
        Mode::Durable => (count + 1, 2),
        // A start, an end and a checkpoint of each step; the first checkpoint; created and started.
        Mode::DurableWithEvents => (count + 1, count * 3 + 3),
    };
    ensure!((checkpoints, events) == expected, "{checkpoints} checkpoints and {events} events, not {expected:?}");
    let visits: Vec<Instant> = std::mem::take(&mut lock(&visits));
    let waits = std::mem::take(&mut *lock(&waits));
    Ok((visits.windows(2).map(|pair| pair[1] - pair[0]).collect(), waits))
}

fn median(samples: &[Duration]) -> (f64, f64, f64) {
    let mut samples: Vec<f64> = samples.iter().map(|sample| sample.as_secs_f64() * 1e3).collect();
    samples.sort_by(f64::total_cmp);
    (samples[samples.len() / 2], samples[0], samples[samples.len() - 1])
}

fn print(rows: &[Row]) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "\n| what | p50 (min–max) | p99 (min–max) | p50 ÷ bare |\n|---|---|---|---|")?;
    let bare = rows.first().map_or(f64::NAN, |row| median(&row.halves).0);
    for Row { name, halves, most } in rows {
        let ((half, low, high), (most, least, worst)) = (median(halves), median(most));
        writeln!(
            out,
            "| {name} | {half:.3} ms ({low:.3}–{high:.3}) | {most:.3} ms ({least:.3}–{worst:.3}) | {:.2} |",
            half / bare
        )?;
    }
    Ok(())
}
