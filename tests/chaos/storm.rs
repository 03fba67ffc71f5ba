//! Faults under load: writers and readers are active while servers, or their Postgres, are killed.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::Context as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use runreel::client::Client;
use rustix::process::{Signal, kill_process};
use serde_json::json;
use tokio::{
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    judge::{ACKNOWLEDGED_MIN, Trial},
    points, progress,
    proxy::{Fate, Proxy, Upstream},
    reader::Target,
    site::{READY_MAX, is_ready},
    stage::{END_MAX, Stage, Verdict, batches, percentile},
    wire,
    writer::{Writer, event},
};

/// Longest wait for the traffic a trial needs.
const TRAFFIC_WAIT_MAX: Duration = Duration::from_mins(1);
/// Longest wait for writers to finish their last emit.
const FINISH_MAX: Duration = Duration::from_mins(2);
/// Random pause before a fault, milliseconds: it may fall on any moment of a commit, a page or a splice.
const BEFORE_MS: std::ops::Range<u64> = 0..700;
/// An emit that cannot be stored must be rejected within this time.
const REFUSED_MAX: Duration = Duration::from_secs(5);
/// Emits sent into a stopped Postgres.
const PROBES: u64 = 8;
/// Health must be truthful within this time.
const TRUTH_MAX: Duration = Duration::from_secs(2);

/// What only a request with events, and the statement that commits them, has in it.
pub(crate) const EVENTS: &str = "\"by\":\"w";
/// A server that has little of everything.
const NARROW: [&str; 4] = ["--db-connections", "2", "--bus-frames", "16"];
/// How many files and sockets it may have open.
const DESCRIPTORS: u64 = 256;
/// Connections of a crowd.
const CROWD: usize = 300;
/// How long a disk stays full.
const FULL: Duration = Duration::from_secs(3);
/// Events of a burst, and of one request of it.
const BURST: u64 = 5_000;
const BURST_BATCH: usize = 100;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// kill -9 of a server, in turn, and a start in its place.
    KillServer,
    /// SIGTERM of a server, in turn, and a start of the newer program in its place.
    ReplaceServer,
    /// kill -9 of the postmaster; the server restarts it.
    KillPostgres,
    /// SIGSTOP of every Postgres process, SIGCONT later.
    StopPostgres(Duration),
    /// The server's connections to Postgres break: in turn one whose commit is stored and not answered, one whose commit
    /// is not sent, and all of them.
    CutDatabase,
    /// The writers' connections to the server break: in turn one whose emit is stored and not answered, and all of them.
    CutClients,
    /// The connections of all readers break at once, so that all of them come back at once.
    CutReaders,
    /// kill -9 of a server at a chosen point, in turn.
    KillAtPoint,
    /// The machine of the database loses its power.
    LosePower,
    /// The disk of the machine of the database is full, its write-ahead log's too.
    FillDisk,
    /// The clock of the machine jumps, and stays wrong for so long.
    JumpClock(Duration),
    /// More connections than the server has descriptors for, and a burst of events through a ring of few frames.
    Crowd,
}

/// A storm's dimensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) processes: usize,
    pub(crate) runs: usize,
    pub(crate) writers: usize,
    pub(crate) readers: usize,
    pub(crate) faults: usize,
    pub(crate) fault: Fault,
    pub(crate) pause_ms_max: u64,
}

/// Executes a plan with servers of `program`, replaced by those of `newer`, and judges the result.
pub(crate) async fn storm(program: &Path, newer: &Path, seed: u64, plan: Plan) -> anyhow::Result<Verdict> {
    let mut stage = match plan.fault {
        Fault::CutDatabase | Fault::KillAtPoint => Stage::behind_proxy(program, plan.runs, seed).await?,
        Fault::CutReaders => Stage::open(program, 1, plan.runs, seed, &["--principal-streams", "2000"]).await?,
        Fault::LosePower | Fault::FillDisk => Stage::on_machine(program, plan.runs, seed).await?,
        Fault::Crowd => Stage::open(program, plan.processes, plan.runs, seed, &NARROW).await?,
        Fault::JumpClock(_) => clock::stage(program, plan.runs, seed).await?,
        // Runs of two lanes have no order in common.
        _ if plan.processes > 1 => Stage::open(program, plan.processes, plan.runs, seed, &["--lanes", "2"]).await?,
        _ => Stage::open(program, plan.processes, plan.runs, seed, &[]).await?,
    };
    if matches!(plan.fault, Fault::CutClients | Fault::CutReaders) {
        stage.proxy = Some(Proxy::to(Upstream::Tcp(stage.servers[0].address.to_string())).await);
    }
    if plan.fault == Fault::Crowd {
        stage.servers[0].limit_descriptors(DESCRIPTORS)?;
    }
    let stop = CancellationToken::new();
    let writers = start_writers(&stage, plan, &stop)?;
    for reader in 0..plan.readers {
        let target = match reader % 6 {
            0 => Target::Tree,
            1 => Target::Everything,
            _ => Target::Run(reader % plan.runs),
        };
        match &stage.proxy {
            Some(proxy) if plan.fault == Fault::CutReaders => {
                stage.add_reader_at((Ipv4Addr::LOCALHOST, proxy.port).into(), target, false);
            }
            _ => stage.add_reader(reader % plan.processes, target, reader % 7 != 6),
        }
    }
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut trials, mut notes) = (Vec::new(), Verdict::default());
    let mut mark = 0;
    for number in 0..plan.faults {
        let enough = under_load(&stage, mark).await;
        sleep(Duration::from_millis(rng.random_range(BEFORE_MS))).await;
        let busy = emit_under_way(&stage).await;
        strike(&mut stage, newer, plan.fault, number, &mut notes).await?;
        let acknowledged = stage.traffic.acknowledged();
        trials.push(Trial { acknowledged: acknowledged - mark, faults: u64::from(busy && enough) });
        progress(format_args!("fault {} of {}, {acknowledged} events acknowledged", number + 1, plan.faults))?;
        mark = acknowledged;
    }
    stop.cancel();
    for writer in writers {
        timeout(FINISH_MAX, writer).await.context("a writer does not finish")??;
    }
    let mut verdict = stage.judge().await?;
    verdict.violations.append(&mut notes.violations);
    verdict.facts.append(&mut notes.facts);
    if plan.fault == Fault::Crowd {
        let lags = lags(stage.servers[0].address).await?;
        verdict.require(lags > 0, || "no reader was ever behind the ring".to_owned());
        verdict.fact(format!("readers were behind the ring {lags} times"));
    }
    let failed = trials.iter().filter(|trial| !trial.counts()).count();
    verdict.require(failed == 0, || format!("{failed} trials prove nothing: {trials:?}"));
    verdict.fact(format!("{} faults", trials.len()));
    stage.close(&mut verdict).await?;
    Ok(verdict)
}

/// Each run has writers on every server.
fn start_writers(stage: &Stage, plan: Plan, stop: &CancellationToken) -> anyhow::Result<Vec<JoinHandle<()>>> {
    (0..plan.writers)
        .map(|number| {
            let run = number % plan.runs;
            let writer = Writer {
                client: match &stage.proxy {
                    Some(proxy) if plan.fault == Fault::CutClients => Client::new(&proxy.base(), None)?,
                    _ => stage.client(number / plan.runs % plan.processes)?,
                },
                run,
                run_id: stage.run_ids[run].clone(),
                name: format!("w{number}"),
                seed: stage.seed ^ (number as u64 + 1) << 32,
                pause_ms_max: plan.pause_ms_max,
            };
            Ok(writer.start(Arc::clone(&stage.traffic), stop.clone()))
        })
        .collect()
}

/// Waits for the traffic of a trial.
async fn under_load(stage: &Stage, mark: u64) -> bool {
    let wait = async {
        while stage.traffic.acknowledged() < mark + ACKNOWLEDGED_MIN {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TRAFFIC_WAIT_MAX, wait).await.is_ok()
}

/// Waits for a moment at which an emit is in progress: the writers pause between two.
async fn emit_under_way(stage: &Stage) -> bool {
    let wait = async {
        while stage.traffic.in_flight.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TRAFFIC_WAIT_MAX, wait).await.is_ok()
}

async fn strike(
    stage: &mut Stage,
    newer: &Path,
    fault: Fault,
    number: usize,
    notes: &mut Verdict,
) -> anyhow::Result<()> {
    let turn = number % stage.servers.len();
    match fault {
        Fault::KillServer => {
            let server = &mut stage.servers[turn];
            server.kill()?;
            server.spawn()?;
            server.ready().await
        }
        Fault::ReplaceServer => {
            let server = &mut stage.servers[turn];
            let ended = server.terminate(END_MAX).await?;
            notes.require(ended.is_some_and(|status| status.success()), || format!("a server ended with {ended:?}"));
            newer.clone_into(&mut server.program);
            server.spawn()?;
            server.ready().await
        }
        Fault::KillPostgres => {
            let postmaster = stage.site.postmaster().context("there is no postmaster to kill")?;
            kill_process(postmaster, Signal::KILL)?;
            let wait = async {
                while stage.site.postmaster().is_none_or(|now| now == postmaster)
                    || !is_ready(stage.servers[0].address).await
                {
                    sleep(Duration::from_millis(20)).await;
                }
            };
            timeout(READY_MAX, wait).await.context("Postgres does not come back")
        }
        Fault::CutDatabase => cut(stage, [Some(Fate::Unanswered), Some(Fate::Lost), None][number % 3]).await,
        Fault::CutReaders => cut(stage, None).await,
        Fault::CutClients => cut(stage, [Some(Fate::Unanswered), None][number % 2]).await,
        Fault::LosePower => {
            stage.machine.as_ref().context("there is no machine")?.lose_power().await?;
            until_ready(stage.servers[0].address).await
        }
        Fault::FillDisk => fill_disk(stage).await,
        Fault::KillAtPoint => points::kill_at(stage, number, notes).await,
        Fault::Crowd => crowd(stage, number).await,
        Fault::JumpClock(lasts) => clock::jump(stage, number, lasts).await,
        Fault::StopPostgres(duration) => stand_still(stage, duration, number, notes).await,
    }
}

async fn until_ready(address: SocketAddr) -> anyhow::Result<()> {
    let wait = async {
        while !is_ready(address).await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(READY_MAX, wait).await.context("the server does not recover")
}

/// Breaks a connection that carries events, or all connections, and waits until the server is ready again.
async fn cut(stage: &Stage, fate: Option<Fate>) -> anyhow::Result<()> {
    let proxy = stage.proxy.as_ref().context("there is no proxy")?;
    match fate {
        Some(fate) => proxy.trap(EVENTS, fate),
        None => proxy.drop_all(),
    }
    let address = stage.servers[0].address;
    let wait = async {
        while proxy.is_set() || !is_ready(address).await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(READY_MAX, wait).await.context("the server does not recover")
}

/// Leaves no room until nothing can be stored, and then for a while.
async fn fill_disk(stage: &Stage) -> anyhow::Result<()> {
    let (machine, address) = (stage.machine.as_ref().context("there is no machine")?, stage.servers[0].address);
    machine.fill()?;
    let told = async {
        while is_ready(address).await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(READY_MAX, told).await.context("the server does not notice")?;
    sleep(FULL).await;
    machine.free()?;
    let back = async {
        while !is_ready(address).await {
            machine.keep_up().await?;
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    timeout(READY_MAX, back).await.context("the server does not recover")?
}

/// Connects more often than the server can accept, emits a burst, and lets go.
async fn crowd(stage: &Stage, number: usize) -> anyhow::Result<()> {
    let (client, address) = (stage.client(0)?, stage.servers[0].address);
    let (mut sockets, mut rng) = (Vec::new(), StdRng::seed_from_u64(stage.seed ^ number as u64));
    let events = (0..BURST).map(|n| event(&format!("burst-{number}"), n, &mut rng)).collect();
    for (batch, events) in batches(events, std::iter::repeat(BURST_BATCH)).into_iter().enumerate() {
        stage.traffic.attempt(0, &events);
        let ack = client.emit_until_stored(&stage.run_ids[0], &events, READY_MAX).await?;
        stage.traffic.answered(0, &events, &ack);
        if batch == 0 {
            // The burst has its connection: from now on nobody gets one.
            for _ in 0..CROWD {
                sockets.push(TcpStream::connect(address).await?);
            }
        }
    }
    drop(sockets);
    until_ready(address).await
}

/// How often readers had to go back to the database.
async fn lags(address: SocketAddr) -> anyhow::Result<u64> {
    let metrics = wire::get(address, "/metrics", &[]).await?.text().await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("runreel_stream_lags_total "));
    line.map_or(Ok(0), |count| Ok(count.parse()?))
}

/// Freezes Postgres, sends emits into it, and lets it continue.
async fn stand_still(stage: &Stage, duration: Duration, number: usize, notes: &mut Verdict) -> anyhow::Result<()> {
    let began = Instant::now();
    let stopped = stage.site.signal_postgres(Signal::STOP);
    notes.require(stopped > 1, || format!("only {stopped} Postgres processes were stopped"));
    let probes: Vec<_> = (0..PROBES).map(|probe| send_probe(stage, number, probe)).collect();
    let probes = probes.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let address = stage.servers[0].address;
    let told = async {
        while is_ready(address).await {
            sleep(Duration::from_millis(20)).await;
        }
        began.elapsed()
    };
    let told = timeout(duration, told).await.unwrap_or(duration);
    // The check itself may take up to its own bound.
    notes.require(told <= TRUTH_MAX + Duration::from_millis(500), || format!("readyz said ready for {told:?}"));
    tokio::time::sleep_until(began + duration).await;
    stage.site.signal_postgres(Signal::CONT);
    let healed = Instant::now();
    until_ready(address).await?;
    let mut waits = Vec::new();
    for probe in probes {
        let (elapsed, status) = probe.await?;
        notes.require(elapsed <= REFUSED_MAX, || format!("an emit was answered ({status:?}) after {elapsed:?}"));
        notes.require(status == Some(503), || format!("an emit into a standing database got {status:?}"));
        waits.push(elapsed);
    }
    waits.sort_unstable();
    notes.fact(format!(
        "stop {}: refused after {} to {} ms, not ready told after {} ms, ready again {} ms after the end",
        number + 1,
        percentile(&waits, 0).as_millis(),
        percentile(&waits, 1_000).as_millis(),
        told.as_millis(),
        healed.elapsed().as_millis()
    ));
    Ok(())
}

/// One emit and one attempt; how long it took and the status it got.
fn send_probe(stage: &Stage, number: usize, probe: u64) -> anyhow::Result<JoinHandle<(Duration, Option<u16>)>> {
    let (client, run_id, traffic) = (stage.client(0)?, stage.run_ids[0].clone(), Arc::clone(&stage.traffic));
    let event_id = format!("probe-{number}-{probe}");
    Ok(tokio::spawn(async move {
        sleep(Duration::from_millis(probe * 100)).await;
        let events = [json!({ "type": "custom.probe", "event_id": event_id, "payload": { "n": probe } })];
        traffic.attempt(0, &events);
        let began = Instant::now();
        match client.emit(&run_id, &events).await {
            Ok(ack) => {
                traffic.answered(0, &events, &ack);
                (began.elapsed(), Some(200))
            }
            Err(error) => (began.elapsed(), error.status),
        }
    }))
}
