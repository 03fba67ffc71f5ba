//! Two servers on one database, one of which is frozen or silently loses its connection to Postgres, under load.
//!
//! The other one must continue. What the lost one held at that moment (a lock, a transaction) is for Postgres to
//! reclaim, and for the server to make reclaimable: so every second moment is chosen such that a transaction is open.
//! Packets are dropped, not rejected: neither side is notified.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rustix::process::Signal;
use sqlx::PgConnection;
use tokio::{
    process::Command,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{Cluster, run, url_at},
    judge::{ACKNOWLEDGED_MIN, Trial},
    progress,
    pulse::{Health, Pulse, longest_gap},
    reader::Target,
    site::{Home, Site},
    stage::{Stage, Verdict},
    table,
    writer::Writer,
};

/// What happens to one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// SIGSTOP, and SIGCONT later.
    Freeze,
    /// Every packet between it and Postgres is dropped, also those of new connections.
    BlackHole,
}

/// Longest time in which the other server may acknowledge nothing.
pub(crate) const GAP_MAX: Duration = Duration::from_secs(5);
/// The lost one must acknowledge again within this time.
const BACK_MAX: Duration = Duration::from_secs(15);
/// Random pause before a moment, milliseconds.
const BEFORE_MS: std::ops::Range<u64> = 0..500;
/// How many attempts to find a moment at which a transaction is open: a freeze is undone at once, and dropped packets
/// have to be sent again first.
const FREEZES_MAX: usize = 25;
const DROPS_MAX: usize = 8;
const RUNS: usize = 3;
/// Each server reaches Postgres at an address of its own.
const ADDRESSES: [[u8; 4]; 2] = [[127, 0, 0, 2], [127, 0, 0, 3]];

pub(crate) async fn peers(
    program: &Path,
    seed: u64,
    loss: Loss,
    (moments, held): (usize, Duration),
) -> anyhow::Result<Verdict> {
    let mut site = Site::new()?;
    let cluster = Cluster::create(&site.file("cluster"), None).await?;
    site.lives_on(cluster.options());
    let homes = ADDRESSES.map(|address| Home::Shared(url_at((address, cluster.port).into()))).to_vec();
    let mut stage = Stage::on(program, site, homes, RUNS, seed, (&[], &[])).await?;
    for reader in 0..8 {
        let target = if reader % 4 == 0 { Target::Everything } else { Target::Run(reader % RUNS) };
        stage.add_reader(reader % 2, target, reader % 2 == 1);
    }
    let mut pulses = Vec::new();
    for server in 0..2 {
        let run = (server, stage.run_ids[server].as_str());
        pulses.push(Pulse::start(&stage.client(server)?, run, &stage.traffic, &format!("p{server}"), 0));
    }
    let health = stage.servers.iter().map(|server| Health::watch(server.address)).collect();
    let stop = CancellationToken::new();
    let writers = start_writers(&stage, &stop)?;
    let database = table::connect(&stage.site).await?;
    let (rng, notes) = (StdRng::seed_from_u64(seed), Verdict::default());
    let mut watch =
        Watch { stage: &stage, cluster: &cluster, loss, held, pulses, health, database, rng, notes, worst: Vec::new() };
    let mut trials = Vec::new();
    for number in 0..moments {
        let mark = stage.traffic.acknowledged();
        let enough = under_load(&stage, mark).await;
        watch.moment(number).await?;
        trials.push(Trial { acknowledged: stage.traffic.acknowledged() - mark, faults: u64::from(enough) });
        progress(format_args!("{loss:?} {} of {moments}", number + 1))?;
    }
    let Watch { mut notes, worst, .. } = watch;
    stop.cancel();
    for writer in writers {
        timeout(Duration::from_mins(2), writer).await.context("a writer does not finish")??;
    }
    let mut verdict = stage.judge().await?;
    verdict.violations.append(&mut notes.violations);
    let failed = trials.iter().filter(|trial| !trial.counts()).count();
    verdict.require(failed == 0, || format!("{failed} trials prove nothing: {trials:?}"));
    let longest = |of: fn(&Moment) -> Duration| worst.iter().map(of).max().unwrap_or_default().as_millis();
    verdict.fact(format!(
        "{moments} moments of {} s, {} with a transaction open; longest time without an acknowledgement on the other \
         server {} ms, the lost one back after at most {} ms",
        held.as_secs_f64(),
        worst.iter().filter(|moment| moment.open).count(),
        longest(|moment| moment.gap),
        longest(|moment| moment.back),
    ));
    stage.close(&mut verdict).await?;
    Ok(verdict)
}

/// The result of one moment.
struct Moment {
    /// A transaction was open.
    open: bool,
    /// Longest time in which the other server acknowledged nothing.
    gap: Duration,
    /// How long after the end of the fault the lost one acknowledged something.
    back: Duration,
}

struct Watch<'a> {
    stage: &'a Stage,
    cluster: &'a Cluster,
    loss: Loss,
    held: Duration,
    pulses: Vec<Pulse>,
    health: Vec<Health>,
    database: PgConnection,
    rng: StdRng,
    notes: Verdict,
    worst: Vec<Moment>,
}

impl Watch<'_> {
    async fn moment(&mut self, number: usize) -> anyhow::Result<()> {
        let (lost, other) = if self.rng.random_bool(0.5) { (0, 1) } else { (1, 0) };
        sleep(Duration::from_millis(self.rng.random_range(BEFORE_MS))).await;
        let open = self.strike(lost, number.is_multiple_of(2)).await?;
        let began = Instant::now();
        sleep_until(began + self.held).await;
        self.mend(lost).await?;
        let ended = Instant::now();
        let back = self.pulses[lost].stored_after(ended, BACK_MAX).await;
        // What was blocked may be released only now.
        let _ = self.pulses[other].stored_after(ended, BACK_MAX).await;
        let gap = longest_gap(&self.pulses[other].stored(), began, Instant::now());
        let ready = self.health[other].ready_percent(began, ended);
        self.notes.require(gap <= GAP_MAX, || {
            format!(
                "moment {number} ({:?} of server {lost}, a transaction open: {open}): server {other} acknowledged \
                 nothing for {} ms; ready in {ready} of 100 looks at its /readyz",
                self.loss,
                gap.as_millis()
            )
        });
        self.notes.require(back.is_some(), || {
            format!("moment {number}: server {lost} does not work again after {BACK_MAX:?}")
        });
        self.worst.push(Moment { open, gap, back: back.map_or(BACK_MAX, |back| back - ended) });
        Ok(())
    }

    /// Applies the loss to the server; if requested, at a moment at which a transaction is open, if there is one.
    /// Returns whether one is.
    async fn strike(&mut self, lost: usize, within: bool) -> anyhow::Result<bool> {
        for _ in 0..if self.loss == Loss::Freeze { FREEZES_MAX } else { DROPS_MAX } {
            self.lose(lost).await?;
            let open = stands_open(&mut self.database).await?;
            if open || !within {
                return Ok(open);
            }
            self.mend(lost).await?;
            let pause = if self.loss == Loss::Freeze { 2_000..8_000 } else { 200_000..400_000 };
            sleep(Duration::from_micros(self.rng.random_range(pause))).await;
        }
        self.lose(lost).await?;
        stands_open(&mut self.database).await
    }

    async fn lose(&self, lost: usize) -> anyhow::Result<()> {
        match self.loss {
            Loss::Freeze => self.stage.servers[lost].signal(Signal::STOP),
            Loss::BlackHole => self.drop_packets("-I", lost).await,
        }
    }

    async fn mend(&self, lost: usize) -> anyhow::Result<()> {
        match self.loss {
            Loss::Freeze => self.stage.servers[lost].signal(Signal::CONT),
            Loss::BlackHole => self.drop_packets("-D", lost).await,
        }
    }

    /// Both ways: what the server sends to Postgres at its own address for it, and what comes from there.
    async fn drop_packets(&self, action: &str, lost: usize) -> anyhow::Result<()> {
        let [a, b, c, d] = ADDRESSES[lost];
        let (address, port) = (format!("{a}.{b}.{c}.{d}"), self.cluster.port.to_string());
        for (side, port_side) in [("-d", "--dport"), ("-s", "--sport")] {
            let mut iptables = Command::new("iptables");
            iptables.args(["-w", action, "INPUT", side, &address, "-p", "tcp", port_side, &port, "-j", "DROP"]);
            run(iptables).await?;
        }
        Ok(())
    }
}

fn start_writers(stage: &Stage, stop: &CancellationToken) -> anyhow::Result<Vec<tokio::task::JoinHandle<()>>> {
    (0..6)
        .map(|number| {
            let writer = Writer {
                client: stage.client(number % 2)?,
                run: number % RUNS,
                run_id: stage.run_ids[number % RUNS].clone(),
                name: format!("w{number}"),
                seed: stage.seed ^ (number as u64 + 1) << 32,
                pause_ms_max: 15,
            };
            Ok(writer.start(Arc::clone(&stage.traffic), stop.clone()))
        })
        .collect()
}

async fn under_load(stage: &Stage, mark: u64) -> bool {
    let traffic = &stage.traffic;
    let wait = async {
        while traffic.acknowledged() < mark + ACKNOWLEDGED_MIN || traffic.in_flight.load(Ordering::Relaxed) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_mins(1), wait).await.is_ok()
}

/// Whether there is an open transaction that has written or locked rows, and has been idle for longer than a
/// statement's round trip.
async fn stands_open(database: &mut PgConnection) -> anyhow::Result<bool> {
    const QUERY: &str = "select pid::text || ' ' || xact_start::text from pg_stat_activity a
                         where backend_type = 'client backend' and state like 'idle in transaction%'
                           and clock_timestamp() - state_change > interval '10 ms'
                           and exists (select from pg_locks l where l.pid = a.pid
                                       and l.mode in ('RowShareLock', 'RowExclusiveLock'))";
    sleep(Duration::from_millis(15)).await;
    let first: Vec<String> = sqlx::query_scalar(QUERY).fetch_all(&mut *database).await?;
    if first.is_empty() {
        return Ok(false);
    }
    sleep(Duration::from_millis(40)).await;
    let second: Vec<String> = sqlx::query_scalar(QUERY).fetch_all(database).await?;
    ensure!(second.len() < 50, "{} transactions stand open", second.len());
    Ok(first.iter().any(|open| second.contains(open)))
}
