//! The fault harness: the real server, a real Postgres, and faults while both are at work.
//!
//! `cargo test --test chaos -- quick` runs the scenarios of the log itself at small scale, `full` all of them at the
//! scale docs/reliability.md quotes; a scenario's name runs it alone. The actions depend on `--seed` alone (their timing
//! does not: that is the point). Progress goes to stderr, one line per scenario to stdout; any violation makes the exit
//! code 1.
//!
//! Start reading at [`judge`] (what counts as wrong), then [`stage`] and [`storm`] (how it is provoked); `reader` and
//! `wire` read streams without the client library, `self_check` shows that the judge detects planted damage. [`points`]
//! are moments at which a server is killed. [`graph`] and [`talk`] are self-contained: the engine in a process that is
//! killed, and conversations on a server that is. So are [`save`]: files that a killed server was writing, and [`demo`].
//! [`live`] is about tokens between servers. [`peers`], [`setback`], [`skew`], [`truthful`] and [`floods`] are about
//! others: who must continue or be notified when a server, a database, a clock, a disk or a neighbour fails. They share
//! [`cluster`], a Postgres for faults, and [`pulse`], which observes without gaps.

#![expect(clippy::disallowed_methods, reason = "files, tasks and clocks of a program outside the server")]

mod alone;
mod clock;
mod cluster;
mod demo;
mod disk;
mod floods;
mod full;
mod fuzz;
mod graph;
mod judge;
mod live;
#[path = "../it/support/nats_server.rs"]
#[expect(unreachable_pub, reason = "the integration tests use it too")]
mod nats_server;
mod peers;
mod points;
mod power;
#[path = "../it/support/proxy.rs"]
#[expect(dead_code, clippy::unwrap_used, unreachable_pub, reason = "the integration tests use the rest")]
mod proxy;
mod pulse;
mod reader;
mod replica;
mod save;
mod scenarios;
mod self_check;
mod setback;
mod site;
mod skew;
mod stage;
mod storm;
mod switch;
mod table;
mod talk;
mod truthful;
mod wire;
mod writer;

use std::{
    fmt,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};

use crate::{
    peers::Loss,
    stage::Verdict,
    storm::{Fault, Plan, storm},
};

/// What can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// What every change passes: the scenarios of the log itself, small.
    Quick,
    /// Every scenario at full scale; with `--small`, every scenario small.
    Full,
    SelfCheck,
    Kills,
    TwoWriters,
    SameEventId,
    TwoProcesses,
    Rolling,
    Live,
    LiveNats,
    PostgresKills,
    PostgresStop,
    DatabaseCuts,
    ClientCuts,
    FailPoints,
    PowerLoss,
    FullDisk,
    FullStores,
    ReaderStorm,
    ClockJumps,
    Narrow,
    Drain,
    StalledReaders,
    GraphKills,
    TalkKills,
    SaveKills,
    Demo,
    Freeze,
    BlackHole,
    SetBack,
    Replica,
    Skew,
    Floods,
    Truthful,
    Fuzz,
}

/// What the quick tier is: where a change of the log, its streams or its cursors would show first.
const QUICK: [Scenario; 11] = [
    Scenario::SelfCheck,
    Scenario::Kills,
    Scenario::TwoWriters,
    Scenario::SameEventId,
    Scenario::TwoProcesses,
    Scenario::Live,
    Scenario::PostgresKills,
    Scenario::DatabaseCuts,
    Scenario::ClientCuts,
    Scenario::FailPoints,
    Scenario::Drain,
];

/// Breaks things on purpose and counts what should not have happened.
#[derive(Debug, Parser)]
struct Args {
    /// What to run; a scenario alone runs at full scale.
    #[arg(value_enum, default_value = "quick")]
    wanted: Scenario,
    /// Everything random follows from it; printed, so that a run can be repeated.
    #[arg(long)]
    seed: Option<u64>,
    /// Faults of a storm, instead of the scale's own number.
    #[arg(long)]
    faults: Option<usize>,
    /// Server processes of two-writers; without it both one and two are run.
    #[arg(long)]
    processes: Option<usize>,
    /// Run a single scenario at small scale.
    #[arg(long)]
    small: bool,
    /// One kind of the floods; without it all of them.
    #[arg(long, value_enum)]
    kind: Option<floods::attack::Kind>,
    /// The server to test.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_runreel"))]
    server: PathBuf,
    /// What `rolling` replaces by it, such as the last release; without it, the same program.
    #[arg(long)]
    older: Option<PathBuf>,
    /// The harness is in a network and with mounts of its own already.
    #[arg(long, hide = true)]
    alone: bool,
}

/// Reports progress on stderr.
fn progress(text: fmt::Arguments<'_>) -> std::io::Result<()> {
    writeln!(std::io::stderr(), "  {text}")
}

fn main() -> anyhow::Result<ExitCode> {
    if graph::child::is_wanted() {
        return graph::child::main().map(|()| ExitCode::SUCCESS);
    }
    if floods::attack::is_wanted() {
        return floods::attack::main().map(|()| ExitCode::SUCCESS);
    }
    let args = Args::parse();
    alone::enter()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        tokio::select! {
            code = run(&args) => code,
            // Dropping the scenario ends its processes and removes its folder.
            _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(130)),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    code
}

async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let mut out = std::io::stdout();
    writeln!(out, "chaos seed {seed}, server {}", args.server.display())?;
    let small = args.small || args.wanted == Scenario::Quick;
    let is_tier = |scenario: &Scenario| matches!(scenario, Scenario::Quick | Scenario::Full);
    let scenarios: Vec<Scenario> = match args.wanted {
        Scenario::Quick => QUICK.to_vec(),
        Scenario::Full => Scenario::value_variants().iter().copied().filter(|one| !is_tier(one)).collect(),
        one => vec![one],
    };
    let (mut score, began) = (Score::default(), Instant::now());
    for scenario in scenarios {
        let began = Instant::now();
        // Each flood is reported when it ends: all of them together take a quarter of an hour.
        for kind in floods::kinds(args.kind, small).filter(|_| scenario == Scenario::Floods) {
            progress(format_args!("floods ({})", kind.name()))?;
            score.tell(&format!("floods ({})", kind.name()), floods::run(&args.server, kind, small).await)?;
        }
        for (name, verdict) in play(args, scenario, small, seed).await {
            score.tell(&name, verdict)?;
        }
        progress(format_args!("{} s", began.elapsed().as_secs()))?;
    }
    let Score { passed, failed, absent } = score;
    let absent = if absent > 0 { format!(", {absent} cannot be run here") } else { String::new() };
    writeln!(out, "{passed} passed, {failed} failed{absent}, in {} s", began.elapsed().as_secs())?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many scenarios had which result.
#[derive(Default)]
struct Score {
    passed: usize,
    failed: usize,
    /// The machine lacks what they need.
    absent: usize,
}

impl Score {
    fn tell(&mut self, name: &str, verdict: anyhow::Result<Verdict>) -> std::io::Result<()> {
        let (count, word) = match &verdict {
            Ok(verdict) if verdict.cannot.is_some() => (&mut self.absent, "ABSENT"),
            Ok(verdict) if verdict.is_clean() => (&mut self.passed, "ok    "),
            _ => (&mut self.failed, "FAILED"),
        };
        *count += 1;
        match verdict {
            Ok(verdict) => {
                writeln!(std::io::stdout(), "{word} {name}: {verdict}")?;
                verdict.violations.iter().try_for_each(|violation| progress(format_args!("{name}: {violation}")))
            }
            Err(error) => writeln!(std::io::stdout(), "{word} {name}: {error:#}"),
        }
    }
}

type Played = Vec<(String, anyhow::Result<Verdict>)>;

async fn play(args: &Args, scenario: Scenario, small: bool, seed: u64) -> Played {
    let name = scenario.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let _ = writeln!(std::io::stderr(), "{name}");
    let program: &Path = &args.server;
    let pick = |few: usize, many: usize| if small { few } else { many };
    let base = Plan {
        processes: 1,
        runs: 4,
        writers: 8,
        readers: pick(18, 30),
        faults: 0,
        fault: Fault::KillServer,
        pause_ms_max: pick(25, 15) as u64,
    };
    let faults = |few, many| args.faults.unwrap_or(pick(few, many));
    let plan = match scenario {
        Scenario::Kills => Plan { faults: faults(5, 20), ..base },
        Scenario::TwoProcesses => Plan { processes: 2, faults: faults(3, 8), readers: pick(12, 20), ..base },
        Scenario::Rolling => {
            let plan = Plan {
                processes: 2,
                fault: Fault::ReplaceServer,
                faults: faults(2, 20),
                readers: pick(12, 20),
                ..base
            };
            let older = args.older.as_deref().unwrap_or(program);
            return vec![(name, storm(older, program, seed, plan).await)];
        }
        Scenario::PostgresKills => {
            Plan { fault: Fault::KillPostgres, faults: faults(2, 6), readers: pick(8, 12), ..base }
        }
        Scenario::PostgresStop => {
            let fault = Fault::StopPostgres(Duration::from_secs(6));
            Plan { fault, faults: faults(1, 3), readers: pick(8, 12), ..base }
        }
        Scenario::DatabaseCuts => {
            Plan { fault: Fault::CutDatabase, faults: faults(6, 30), readers: pick(8, 12), ..base }
        }
        Scenario::ClientCuts => Plan { fault: Fault::CutClients, faults: faults(10, 60), ..base },
        Scenario::FailPoints => {
            let plan = Plan { fault: Fault::KillAtPoint, faults: faults(5, 50), readers: pick(8, 12), ..base };
            let uploads = points::uploads(program, seed, args.faults.unwrap_or(pick(2, 20))).await;
            return vec![
                (name.clone(), storm(program, program, seed, plan).await),
                (format!("{name} (uploads)"), uploads),
            ];
        }
        Scenario::PowerLoss | Scenario::FullDisk | Scenario::FullStores if !args.alone => {
            return vec![(name, Ok(Verdict::cannot(alone::MISSING_DISK)))];
        }
        Scenario::FullDisk => Plan { fault: Fault::FillDisk, faults: faults(1, 5), readers: pick(8, 12), ..base },
        Scenario::PowerLoss => Plan { fault: Fault::LosePower, faults: faults(2, 20), readers: pick(8, 12), ..base },
        Scenario::ClockJumps if skew::library().is_none() => return vec![(name, Ok(Verdict::cannot(skew::MISSING)))],
        Scenario::ClockJumps => {
            // The server looks at the database's clock once a minute.
            let fault = Fault::JumpClock(Duration::from_secs(pick(2, 65) as u64));
            Plan { fault, faults: faults(1, 6), readers: pick(8, 12), ..base }
        }
        // A thousand readers get everything, so writers emit less.
        Scenario::ReaderStorm => Plan {
            fault: Fault::CutReaders,
            faults: faults(2, 20),
            readers: pick(100, 1_000),
            pause_ms_max: pick(100, 1_500) as u64,
            ..base
        },
        Scenario::Narrow => Plan { fault: Fault::Crowd, faults: faults(1, 5), readers: pick(4, 30), ..base },
        other => return play_other(args, other, small, seed, name).await,
    };
    vec![(name, storm(program, program, seed, plan).await)]
}

async fn play_other(args: &Args, scenario: Scenario, small: bool, seed: u64, name: String) -> Played {
    let program: &Path = &args.server;
    let pick = |few: usize, many: usize| if small { few } else { many };
    let verdict = match scenario {
        Scenario::SelfCheck => self_check::run(),
        Scenario::TwoWriters => {
            let mut played = Vec::new();
            for processes in args.processes.map_or(vec![1, 2], |processes| vec![processes]) {
                let verdict = scenarios::two_writers(program, seed, processes, pick(1_000, 10_000)).await;
                played.push((format!("{name} ({processes})"), verdict));
            }
            return played;
        }
        Scenario::Live | Scenario::LiveNats => {
            let quiet = Duration::from_secs(pick(2, 30) as u64);
            // Small, it runs beside other tests: there only what no wake-up announced, which comes with the end of its
            // message, is too late.
            let age_max = Duration::from_millis(pick(2_000, 300) as u64);
            let nats_kills = (scenario == Scenario::LiveNats).then_some(pick(3, 30));
            let faults = (args.faults.unwrap_or(pick(3, 50)), nats_kills);
            live::live(program, seed, pick(12, 30), faults, (quiet, age_max)).await
        }
        Scenario::FullStores => full::run(program, args.faults.unwrap_or(pick(1, 5))).await,
        Scenario::SameEventId => scenarios::same_event_id(program, seed).await,
        Scenario::Drain => scenarios::drain(program, seed, pick(100, 200)).await,
        Scenario::StalledReaders => scenarios::stalled_readers(program, seed, pick(10, 20), pick(4, 40)).await,
        Scenario::GraphKills => graph::run(seed, args.faults.unwrap_or(pick(24, 150))).await,
        Scenario::TalkKills => talk::run(program, seed, args.faults.unwrap_or(pick(6, 50))).await,
        Scenario::SaveKills => save::run(program, seed, args.faults.unwrap_or(pick(4, 100))).await,
        Scenario::Demo => demo::run(program, seed, args.faults.unwrap_or(pick(2, 20))).await,
        Scenario::BlackHole if !args.alone => Ok(Verdict::cannot(alone::MISSING)),
        Scenario::Freeze | Scenario::BlackHole => {
            let loss = if scenario == Scenario::Freeze { Loss::Freeze } else { Loss::BlackHole };
            let held = Duration::from_secs(pick(6, 8) as u64);
            peers::peers(program, seed, loss, (args.faults.unwrap_or(pick(1, 20)), held)).await
        }
        Scenario::Replica => replica::run(program, Duration::from_secs(pick(2, 15) as u64)).await,
        Scenario::SetBack => setback::run(program, seed, args.faults.unwrap_or(pick(1, 20))).await,
        Scenario::Skew => skew::run(program, pick(1, 5), pick(6, 24)).await,
        Scenario::Fuzz => fuzz::run(program, seed, Duration::from_secs(pick(3, 60) as u64)).await,
        Scenario::Truthful => match truthful::run(program, small, args.alone).await {
            Ok(played) => return played,
            Err(error) => Err(error),
        },
        _ => return Vec::new(),
    };
    vec![(name, verdict)]
}
