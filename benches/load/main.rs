//! The load program: one table of everything quality depends on, measured against the same database without us.
//!
//! `cargo bench --bench load` starts `target/release/runreel serve` on a folder of its own; `--url` measures a server
//! that runs already (without the bare-database rows, memory and cold start). Every count is verified: a measurement
//! that lost an event is an error, not a figure. Figures are medians with their range; beside each stand the
//! processors the generator, the server, Postgres and everybody else used, so that a saturated generator shows.
//!
//! Start reading at [`run`]; `emit`, `fanout`, `replay` measure us, `baseline` measures Postgres.

#![expect(clippy::disallowed_methods, reason = "files, tasks and clocks of a program outside the server")]

mod baseline;
mod emit;
mod fanout;
mod http;
mod machine;
mod pairs;
mod replay;
mod server;
mod stats;
mod table;
mod verify;

use std::{io::Write as _, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Parser;

use crate::{
    baseline::Bare,
    emit::Load,
    replay::{Format, Idle},
    server::Server,
    stats::{Unit, millis},
    table::Table,
};

/// Measures a Runreel server.
#[derive(Debug, Parser)]
struct Args {
    /// A server that runs already, such as 127.0.0.1:7717.
    #[arg(long, value_name = "ADDR:PORT")]
    url: Option<SocketAddr>,
    /// The program to start when no server is named.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/release/runreel"))]
    server: PathBuf,
    /// A Postgres for the server, instead of the embedded one.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// Another build of the program: emits are measured on both, in turn, and nothing else is.
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["url", "database_url"])]
    vs: Option<PathBuf>,
    /// A short look that everything works; its figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Measurements of each figure.
    #[arg(long)]
    repeats: Option<usize>,
    /// Only rows whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Scale {
    repeats: usize,
    window: Duration,
    subscribers: usize,
    messages: u64,
    paced_messages: u64,
    replay_events: usize,
    verified_events: usize,
    idle: [usize; 2],
}

impl Args {
    fn scale(&self) -> Scale {
        let full = Scale {
            repeats: self.repeats.unwrap_or(3),
            window: Duration::from_secs(4),
            subscribers: 1_000,
            messages: 300,
            paced_messages: 100,
            replay_events: 100_000,
            verified_events: 1_000_000,
            idle: [1_000, 5_000],
        };
        let quick = Scale {
            repeats: self.repeats.unwrap_or(1),
            window: Duration::from_millis(400),
            subscribers: 50,
            messages: 40,
            paced_messages: 20,
            replay_events: 5_000,
            verified_events: 10_000,
            idle: [50, 100],
        };
        if self.quick { quick } else { full }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            done = run(&args) => done.map(|()| ExitCode::SUCCESS),
            // Dropping the server ends it and removes its folder.
            _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(130)),
        }
    })
}

async fn run(args: &Args) -> anyhow::Result<()> {
    let scale = args.scale();
    writeln!(std::io::stdout(), "{}", machine::facts())?;
    if let Some(other) = &args.vs {
        return pairs::compare(&args.server, other, scale).await;
    }
    let server = match args.url {
        Some(address) => Server::at(address),
        None => Server::start(&args.server, args.database_url.as_deref()).await?.0,
    };
    let bare = match server.data_dir() {
        Some(data_dir) => Some(Bare::prepare(&data_dir).await?),
        None => None,
    };
    if let Some(bare) = &bare {
        writeln!(std::io::stdout(), "Postgres {}, {}", bare.version().await?, args.server.display())?;
    }
    let mut table = Table::new(&server, args.only.clone());
    singles(&mut table, &server, bare.as_ref(), scale).await?;
    batches(&mut table, &server, bare.as_ref(), scale).await?;
    latency(&mut table, &server, bare.as_ref(), scale).await?;
    replays(&mut table, &server, bare.as_ref(), scale).await?;
    fan_out(&mut table, &server, scale).await?;
    idle(&mut table, args, scale).await?;
    verification(&mut table, args, scale).await?;
    cold(&mut table, args, scale).await?;
    table.ratios()
}

async fn singles(table: &mut Table, server: &Server, bare: Option<&Bare>, scale: Scale) -> anyhow::Result<()> {
    // The rows of one comparison are measured in turn, so that a noisy minute meets all of them.
    for _ in 0..scale.repeats {
        for connections in [1, 8, 64] {
            let load = Load { connections, batch: 1, keyed: false };
            let name = format!("emit, 1 event per request, {connections} connections");
            table.measure(&name, Unit::PerSecond, || emit::rate(server, load, scale.window)).await?;
            if let Some(bare) = bare {
                let clients = connections.min(baseline::CLIENTS_MAX);
                let name = format!("bare insert and commit, {clients} clients");
                table.measure(&name, Unit::PerSecond, || bare.singles(clients, scale.window)).await?;
            }
        }
        let load = Load { connections: 64, batch: 1, keyed: true };
        let name = "emit, 1 event per request, 64 connections, event_id";
        table.measure(name, Unit::PerSecond, || emit::rate(server, load, scale.window)).await?;
    }
    Ok(())
}

async fn batches(table: &mut Table, server: &Server, bare: Option<&Bare>, scale: Scale) -> anyhow::Result<()> {
    for _ in 0..scale.repeats {
        for (connections, keyed) in [(1, false), (8, false), (8, true)] {
            let load = Load { connections, batch: 100, keyed };
            let key = if keyed { ", event_id" } else { "" };
            let name = format!("emit, batches of 100, {connections} connections{key}");
            table.measure(&name, Unit::PerSecond, || emit::rate(server, load, scale.window)).await?;
        }
        if let Some(bare) = bare {
            let name = "bare UNNEST, batches of 100, 2 clients";
            table.measure(name, Unit::PerSecond, || bare.batches(2, 100, scale.window)).await?;
        }
    }
    Ok(())
}

async fn latency(table: &mut Table, server: &Server, bare: Option<&Bare>, scale: Scale) -> anyhow::Result<()> {
    for _ in 0..scale.repeats {
        let names = ["emit at 200/s, acknowledged, p50", "emit at 200/s, acknowledged, p99"];
        table
            .measure_two(names, Unit::Millis, || async {
                let (half, most) = emit::latency(server, 200, scale.window * 2).await?;
                Ok([millis(half), millis(most)])
            })
            .await?;
        let Some(bare) = bare else { continue };
        let names = ["bare insert and commit at 200/s, p50", "bare insert and commit at 200/s, p99"];
        table
            .measure_two(names, Unit::Millis, || async {
                let (half, most) = bare.latency(200, scale.window * 2).await?;
                Ok([millis(half), millis(most)])
            })
            .await?;
    }
    Ok(())
}

async fn replays(table: &mut Table, server: &Server, bare: Option<&Bare>, scale: Scale) -> anyhow::Result<()> {
    if !table.wants("replay") {
        return Ok(());
    }
    let run_id = emit::fill(server, scale.replay_events).await?;
    let events = scale.replay_events as u64 + 2;
    for _ in 0..scale.repeats {
        for (name, format) in [("SSE", Format::Sse), ("NDJSON", Format::Ndjson)] {
            let names = [format!("replay {events}, {name}"), format!("replay {events}, {name}, first event")];
            let names = names.each_ref().map(String::as_str);
            table
                .measure_two(names, Unit::Millis, || async {
                    let replay = replay::replay(server, &run_id, events, format).await?;
                    anyhow::ensure!(replay.bytes > 0, "nothing was read");
                    Ok([millis(replay.whole), millis(replay.first_byte)])
                })
                .await?;
        }
        let Some(bare) = bare else { continue };
        let names =
            [format!("replay {events}, bare COPY TO STDOUT"), format!("replay {events}, bare COPY, first byte")];
        table
            .measure_two(names.each_ref().map(String::as_str), Unit::Millis, || async {
                let (rows, whole, first) = bare.copy_out(&run_id).await?;
                anyhow::ensure!(rows == events, "COPY brought {rows} of {events} rows");
                Ok([millis(whole), millis(first)])
            })
            .await?;
    }
    Ok(())
}

async fn fan_out(table: &mut Table, server: &Server, scale: Scale) -> anyhow::Result<()> {
    if !table.wants("fan-out") {
        return Ok(());
    }
    // As in the measurements of other servers: the server (and its Postgres) on one processor, we on another.
    let parties = [server.pid(), server.postmaster()].into_iter().flatten();
    let parties: Vec<u32> = parties.flat_map(|pid| machine::children(pid).into_iter().chain([pid])).collect();
    for pid in &parties {
        machine::pin(*pid, "0");
    }
    machine::pin(std::process::id(), "1");
    for _ in 0..scale.repeats {
        let name = format!("fan-out to {} subscribers, deliveries", scale.subscribers);
        table.measure(&name, Unit::PerSecond, || fanout::full_speed(server, scale.subscribers, scale.messages)).await?;
        let names = ["p50", "p99"].map(|part| format!("fan-out to {}, 10 messages/s, {part}", scale.subscribers));
        table
            .measure_two(names.each_ref().map(String::as_str), Unit::Millis, || async {
                let (half, most) = fanout::paced(server, scale.subscribers, scale.paced_messages, 10).await?;
                Ok([millis(half), millis(most)])
            })
            .await?;
    }
    for pid in parties.into_iter().chain([std::process::id()]) {
        machine::pin(pid, "0-1023");
    }
    Ok(())
}

/// Each time on a new server: memory that was used before hides what is used now.
async fn idle(table: &mut Table, args: &Args, scale: Scale) -> anyhow::Result<()> {
    if args.url.is_some() || !table.wants("memory") {
        return Ok(());
    }
    for _ in 0..scale.repeats {
        let (server, _) = Server::start(&args.server, args.database_url.as_deref()).await?;
        let run_id = server.create_run().await?;
        let mut idle = Idle::none(server.pid().context("our server has a pid")?);
        for count in scale.idle {
            let name = format!("memory per idle subscriber, {count}");
            let each = idle.grow(&server, &run_id, count).await?;
            table.note(&name, Unit::Kib, each)?;
        }
    }
    Ok(())
}

async fn verification(table: &mut Table, args: &Args, scale: Scale) -> anyhow::Result<()> {
    if args.url.is_some() || args.database_url.is_some() || !table.wants("verify") {
        return Ok(());
    }
    let (server, _) = Server::start(&args.server, None).await?;
    let data_dir = server.data_dir().context("our server has a folder")?;
    verify::fill(&server, scale.verified_events).await?;
    for _ in 0..scale.repeats {
        let (took, events) = verify::verify(&args.server, &data_dir)?;
        table.note(&format!("verify --all, {events} events"), Unit::Millis, millis(took))?;
    }
    Ok(())
}

async fn cold(table: &mut Table, args: &Args, scale: Scale) -> anyhow::Result<()> {
    if args.url.is_some() || !table.wants("cold") {
        return Ok(());
    }
    for _ in 0..scale.repeats {
        let (mut server, first) = Server::start(&args.server, args.database_url.as_deref()).await?;
        server.stop();
        let second = server.spawn().await?;
        table.note("cold start, new database", Unit::Millis, millis(first))?;
        table.note("cold start, existing database", Unit::Millis, millis(second))?;
    }
    Ok(())
}
