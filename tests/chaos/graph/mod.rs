//! A graph of the engine in a process that is killed, again and again, and continued by the next process.
//!
//! The parts are the real ones: Postgres, store, timeline, the thread's checkpointer, the run's emitter. The process is
//! this program itself ([`child`]), killed with SIGKILL at a place it has just reported: either it halts there, so that
//! the kill falls exactly between two operations, or it is killed a random moment later, while it continues.
//!
//! [`judge`] defines what must hold; [`plants`] shows that it detects planted damage, in the data and in the program.

pub(crate) mod child;
mod judge;
mod plants;
mod ten;
mod truth;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use runreel::clock::{Clock, IdSource};
use sqlx::PgConnection;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::{Instant, timeout},
};

use self::{
    child::Plant,
    judge::{History, judge},
    ten::STEPS,
};
use crate::{
    progress,
    site::{Shared, Site},
    stage::{Verdict, percentile},
    table,
};

/// The argument with which this program is started to be killed.
pub(crate) const CHILD: &str = "graph-child";
/// Kills of a run that is killed more than once.
const KILLS_OF_ONE: usize = 3;
/// A kill that does not find its process halted comes at most this much later.
const LATER_MICROS: std::ops::Range<u64> = 0..4_000;
/// The process halts after at most this many places, so that no kill comes after the end.
const RUNWAY: u32 = 10;
/// Longest life of one process.
const CHILD_MAX: Duration = Duration::from_mins(1);
/// How many complaints of one trial are printed.
const SHOWN: usize = 4;

/// Where a process is to be killed.
#[derive(Clone, Copy, Debug)]
struct Aim {
    /// The place at which the kill is decided.
    place: u32,
    /// How long after it reported that place; `None`: it halts there.
    later: Option<Duration>,
}

/// How far a process got.
#[derive(Debug)]
struct Fell {
    places: u32,
    /// The step it was in, and the places it reported.
    step: u32,
    told: Vec<String>,
    killed: bool,
    done: bool,
}

/// The environment: a Postgres, and a connection to observe it.
struct Ground {
    site: Site,
    shared: Shared,
    database: PgConnection,
    ids: IdSource,
}

impl Fell {
    fn last(&self) -> &str {
        self.told.last().map_or("", String::as_str)
    }
}

impl Ground {
    async fn new() -> anyhow::Result<Self> {
        let site = Site::new()?;
        let shared = Shared::start(&site).await?;
        let database = table::connect(&site).await?;
        Ok(Self { site, shared, database, ids: IdSource::random(Clock::System) })
    }

    fn ledger(&self, run_id: &str) -> PathBuf {
        self.site.file(&format!("ledger-{run_id}"))
    }

    async fn child(&self, run_id: &str, attempt: usize, aim: Option<Aim>, plant: Plant) -> anyhow::Result<Fell> {
        let log = std::fs::File::options().create(true).append(true).open(self.site.file("children.log"))?;
        let halt_at = aim.map(|aim| if aim.later.is_some() { aim.place + RUNWAY } else { aim.place });
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(CHILD).args(["--run-id", run_id, "--attempt", &attempt.to_string()]);
        command.arg("--ledger").arg(self.ledger(run_id)).args(["--plant", plant.word()]);
        command.args(["--listen", "127.0.0.1:0", "--db-connections", "4", "--database-url", &self.shared.url()]);
        command.arg("--data-dir").arg(self.site.file("child"));
        if let Some(place) = halt_at {
            command.args(["--halt-at", &place.to_string()]);
        }
        command.env_remove("DATABASE_URL").env_remove("RUNREEL_DATA_DIR").kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let mut fell = Fell { places: 0, step: 0, told: Vec::new(), killed: false, done: false };
        while let Some(line) = lines.next_line().await? {
            let mut words = line.splitn(3, ' ');
            let number = words.next().and_then(|word| word.parse().ok());
            let (Some(number), Some(step), Some(what)) = (number, words.next(), words.next()) else {
                fell.done |= line == "done";
                continue;
            };
            (fell.places, fell.step) = (number, step.parse()?);
            fell.told.push(what.to_owned());
            let Some(aim) = aim.filter(|aim| aim.place == number) else { continue };
            let began = Instant::now();
            // A sleep is only exact to the millisecond; operations are shorter.
            while began.elapsed() < aim.later.unwrap_or_default() {
                std::hint::spin_loop();
            }
            child.start_kill()?;
            fell.killed = true;
        }
        let status = child.wait().await?;
        let log = || std::fs::read_to_string(self.site.file("children.log")).unwrap_or_default();
        ensure!(fell.killed || fell.done, "a process ended by itself ({status}): {}", log());
        Ok(fell)
    }

    /// Executes a run with as many processes as it takes; each but the last is killed according to its aim.
    async fn trial(&mut self, aims: &[Aim], plant: Plant) -> anyhow::Result<(History, Vec<Fell>)> {
        let run_id = self.ids.uuid().to_string();
        let (mut fallen, mut kills) = (Vec::new(), Vec::new());
        for (attempt, aim) in (1..).zip(aims.iter().copied().map(Some).chain([None])) {
            let fell =
                timeout(CHILD_MAX, self.child(&run_id, attempt, aim, plant)).await.context("a process hangs")??;
            truth::quiet(&mut self.database).await?;
            if aim.is_some() {
                kills.push(truth::kept(&mut self.database, &run_id).await?);
            }
            fallen.push(fell);
        }
        let history = History {
            state: truth::state(&mut self.database, &run_id).await?,
            told: truth::told(&mut self.database, &run_id).await?,
            ledger: truth::ledger(&self.ledger(&run_id))?,
            kills,
            end: truth::kept(&mut self.database, &run_id).await?,
        };
        Ok((history, fallen))
    }
}

/// The aims of all trials: seven of ten kills alone in their run, spread evenly over its places, the rest in threes.
fn aims(rng: &mut StdRng, kills: usize, places: u32) -> Vec<Vec<Aim>> {
    let alone = (kills - kills * 3 / 10).max(1);
    let mut trials = Vec::new();
    for number in 0..alone as u64 {
        let at = |number| u32::try_from(u64::from(places) * number / alone as u64 + 1).unwrap_or(places);
        let (from, to) = (at(number), at(number + 1));
        trials.push(vec![aim(rng, from..to.max(from + 1), places)]);
    }
    let mut rest = kills - alone;
    while rest > 0 {
        let several = rest.min(KILLS_OF_ONE);
        // However far each gets, the next one is still in progress.
        trials.push((0..several).map(|_| aim(rng, 1..places / 5, places)).collect());
        rest -= several;
    }
    trials
}

fn aim(rng: &mut StdRng, among: std::ops::Range<u32>, places: u32) -> Aim {
    let place = rng.random_range(among);
    let stands = place + RUNWAY > places || rng.random_bool(0.4);
    Aim { place, later: (!stands).then(|| Duration::from_micros(rng.random_range(LATER_MICROS))) }
}

/// Kills graphs and judges the results.
pub(crate) async fn run(seed: u64, kills: usize) -> anyhow::Result<Verdict> {
    let mut ground = Ground::new().await?;
    let mut verdict = Verdict::default();
    let mut rng = StdRng::seed_from_u64(seed);
    let (whole, undisturbed) = ground.trial(&[], Plant::Nothing).await?;
    let (again, _) = ground.trial(&[], Plant::Nothing).await?;
    let places = undisturbed[0].places;
    ensure!(whole.end.step == Some(STEPS), "the undisturbed run took {:?} steps", whole.end.step);
    for (name, history) in [("one run", &whole), ("another run", &again)] {
        verdict
            .violations
            .extend(judge(&whole, history).into_iter().map(|wrong| format!("{name}, undisturbed: {wrong}")));
    }
    let mut tally = Totals::default();
    for (number, aims) in aims(&mut rng, kills, places).into_iter().enumerate() {
        let began = Instant::now();
        let (history, fallen) = ground.trial(&aims, Plant::Nothing).await?;
        tally.count(&aims, &fallen, &history, began.elapsed());
        for wrong in judge(&whole, &history).into_iter().take(SHOWN) {
            let fell: Vec<_> = fallen.iter().map(|fell| (fell.places, fell.step, fell.last())).collect();
            verdict.violations.push(format!("trial {number}, killed at {fell:?}: {wrong}"));
        }
        progress(format_args!("{} of {kills} kills", tally.kills))?;
    }
    tally.tell(&whole, kills, &mut verdict);
    plants::run(&mut ground, &whole, &again, &undisturbed[0].told, &mut verdict).await?;
    let Ground { shared, database, .. } = ground;
    drop(database);
    shared.stop().await?;
    Ok(verdict)
}

/// The results of all trials.
#[derive(Debug, Default)]
struct Totals {
    runs: usize,
    kills: usize,
    stood: usize,
    outside: Vec<String>,
    steps: BTreeSet<u32>,
    /// Where kills fell: the kind of operation.
    fell: BTreeMap<String, usize>,
    /// Repeated visits of a step: the earlier one was killed before its update was stored.
    again: usize,
    /// The same for values that were computed to be memoized.
    twice: usize,
    took: Vec<Duration>,
}

impl Totals {
    fn count(&mut self, aims: &[Aim], fallen: &[Fell], history: &History, took: Duration) {
        self.runs += 1;
        self.took.push(took);
        for (aim, fell) in aims.iter().zip(fallen) {
            self.kills += 1;
            self.stood += usize::from(aim.later.is_none());
            if fell.done || !fell.killed {
                self.outside.push(format!("{aim:?}: place {}, {}", fell.places, fell.last()));
                continue;
            }
            self.steps.insert(fell.step);
            let what = fell.last().split(' ').next().unwrap_or_default();
            *self.fell.entry(what.to_owned()).or_default() += 1;
        }
        let mut seen = BTreeSet::new();
        for line in &history.ledger {
            let first = seen.insert((&line.span, &line.what));
            let counter = if line.what == "visit" { &mut self.again } else { &mut self.twice };
            *counter += usize::from(!first);
        }
    }

    fn tell(&mut self, whole: &History, wanted: usize, verdict: &mut Verdict) {
        self.took.sort_unstable();
        verdict.require(self.outside.is_empty(), || format!("kills outside the run: {:?}", self.outside));
        verdict.require(self.kills == wanted, || format!("{} kills of {wanted}", self.kills));
        // Three times as many kills as steps should hit all but one step; six times as many, every one.
        let missed: Vec<u32> = (1..=STEPS).filter(|step| !self.steps.contains(step)).collect();
        let (some, most) = (3 * STEPS as usize, 6 * STEPS as usize);
        verdict.require(wanted < some || missed.len() <= usize::from(wanted < most), || {
            format!("no kill fell into {missed:?}")
        });
        verdict.fact(format!(
            "{} kills in {} runs of {STEPS} steps and {} visits",
            self.kills,
            self.runs,
            whole.ledger.len() - 3
        ));
        verdict.fact(format!(
            "{} steps hit, {} processes stood and {} ran",
            self.steps.len(),
            self.stood,
            self.kills - self.stood
        ));
        let fell: Vec<String> = self.fell.iter().map(|(what, count)| format!("{what} {count}")).collect();
        verdict.fact(format!("fell at: {}", fell.join(" ")));
        verdict.fact(format!("{} visits and {} computations again, none that was kept", self.again, self.twice));
        verdict.fact(format!(
            "{} events a run, median {} ms a run",
            whole.told.len(),
            percentile(&self.took, 500).as_millis()
        ));
    }
}
