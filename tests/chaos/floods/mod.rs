//! One principal floods with one credential, one kind of flood at a time, beside a stranger who is measured.
//!
//! The stranger emits, reads pages, uploads, creates runs, opens streams and follows one: first in quiet, then under
//! the flood. The flood comes from a separate process with a low priority ([`attack`]), so that the server is measured
//! and not the generator; if there are two processors the server and its Postgres get the first half and the whole
//! harness the second. [`judge`] defines what must hold; ratios are reported and not judged, since on a small machine
//! everything shares the processors with the flood.

pub(crate) mod attack;
mod emits;
mod holds;
mod judge;
mod reads;
mod stranger;

use std::{
    fmt::Write as _,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use clap::ValueEnum as _;
use jsonwebtoken::{EncodingKey, Header, encode};
use runreel::{
    client::Client,
    domain::{id::Name, json::Json},
    wire::runs::CreateRun,
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

pub(crate) use self::judge::plants;
use self::{
    attack::Kind,
    judge::{Figures, Flood, judge},
    stranger::measure,
};
use crate::{
    pulse::Health,
    site::{Home, Server, Site, processes_of},
    stage::{END_MAX, Verdict},
};

pub(crate) const SECRET: &str = "a secret of at least thirty-two bytes";
/// Longest wait until a flood is ready to begin.
const PREPARED_MAX: Duration = Duration::from_mins(3);
/// How long the floods' agent takes for a run, milliseconds.
const JOB_MS: u64 = 4_000;

/// How long each part takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    quiet: Duration,
    flood: Duration,
    /// After the flood, before memory is measured again.
    rest: Duration,
    pub(crate) small: bool,
}

impl Scale {
    pub(crate) fn of(small: bool) -> Self {
        let seconds = |quick, full| Duration::from_secs(if small { quick } else { full });
        Self { quiet: seconds(2, 8), flood: seconds(3, 15), rest: seconds(3, 30), small }
    }
}

/// One kind, or all of the tier.
pub(crate) fn kinds(only: Option<Kind>, small: bool) -> impl Iterator<Item = Kind> {
    let wanted = move |kind: &Kind| only.map_or(!small || kind.is_quick(), |only| only == *kind);
    Kind::value_variants().iter().copied().filter(wanted)
}

/// One kind, on its own server.
pub(crate) async fn run(program: &Path, kind: Kind, small: bool) -> anyhow::Result<Verdict> {
    let scale = Scale::of(small);
    let site = Site::new()?;
    std::fs::write(site.file("runreel.toml"), "[agents.slow]\nmodel = \"script:slow.toml\"\n")?;
    std::fs::write(site.file("slow.toml"), format!("[[turns]]\ntext = \"done\"\ndelay_ms = {JOB_MS}\n"))?;
    let config = site.file("runreel.toml");
    let config = config.to_str().context("the folder's name is no text")?;
    let env = [("RUNREEL_JWT_SECRET", SECRET)];
    let mut server =
        Server::start_with(program, &site, Home::Embedded, 0, &["--auth", "jwt", "--config", config], &env).await?;
    let postgres = processes_of(site.postmaster()).into_iter().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    bind_apart(postgres.chain([server.pid()]));
    let health = Health::watch(server.address);
    let stranger = (server.address, token("stranger")?);
    if kind == Kind::Feeds {
        big_log(&server, if scale.small { 50_000 } else { 3_000_000 }).await?;
    }
    let jobs = kind == Kind::Jobs;
    // What is only created once is created before anything is measured.
    measure(&stranger, Duration::from_millis(500), jobs).await?;
    let start = memory(server.pid(), "VmRSS:")?;
    let quiet = measure(&stranger, if jobs { Duration::from_millis(JOB_MS * 2) } else { scale.quiet }, jobs).await?;
    let mut flood = Attacker::start(kind, &server, scale)?;
    let prepared = flood.prepared().await?;
    let began = Instant::now();
    let attacked = measure(&stranger, scale.flood, jobs).await?;
    let ready = health.ready_percent(began, Instant::now());
    let said = flood.stop().await?;
    sleep(scale.rest).await;
    let flood = Flood {
        quiet,
        attacked,
        ready,
        start,
        peak: memory(server.pid(), "VmHWM:")?,
        after: memory(server.pid(), "VmRSS:")?,
        small: scale.small,
    };
    let mut verdict = Verdict { violations: judge(&flood), ..Verdict::default() };
    let mut fact = String::new();
    write!(fact, "quiet → flood p50/p99/max ms: {}; ", Figures::beside(&flood.quiet, &flood.attacked))?;
    write!(
        fact,
        "ready {ready} %, resident {} → peak {} → {} s later {} MiB; ",
        start,
        flood.peak,
        scale.rest.as_secs(),
        flood.after
    )?;
    write!(fact, "prepared ({prepared}), flooded ({said})")?;
    verdict.fact(fact);
    drop(health);
    let status = server.terminate(END_MAX).await?;
    verdict.require(status.is_some_and(|status| status.success()), || {
        format!("the server ended with {status:?}; its log ends with\n{}", server.log())
    });
    verdict.violations.extend(server.panics());
    Ok(verdict)
}

/// A JWT of this subject, for the next hours.
pub(crate) fn token(subject: &str) -> anyhow::Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let claims = json!({ "sub": subject, "exp": now + 20_000 });
    runreel::auth::signatures::install();
    Ok(encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes()))?)
}

/// Memory of a process, MiB.
fn memory(pid: u32, figure: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).context("no figure of memory")?;
    Ok(line.split_whitespace().next().context("no figure of memory")?.parse::<u64>()? / 1024)
}

/// The server's processes on one half of the processors, the harness on the other; without `taskset` nothing is bound.
fn bind_apart(server: impl Iterator<Item = u32>) {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    if count < 2 {
        return;
    }
    let bind = |pid: u32, processors: String| {
        let mut taskset = std::process::Command::new("taskset");
        _ = taskset.args(["-a", "-p", "-c", &processors, &pid.to_string()]).output();
    };
    server.for_each(|pid| bind(pid, format!("0-{}", count / 2 - 1)));
    bind(std::process::id(), format!("{}-{}", count / 2, count - 1));
}

/// This many events of another principal.
async fn big_log(server: &Server, events: usize) -> anyhow::Result<()> {
    const BATCH: usize = 4_000;
    let client = Client::new(&server.url(), Some(token("another")?))?;
    let batch: Arc<Vec<_>> =
        Arc::new((0..BATCH).map(|n| json!({ "type": "custom.big", "payload": { "n": n } })).collect());
    let mut writers = Vec::new();
    for _ in 0..4 {
        let run_id = client.create_run(&CreateRun::default()).await?.run_id.to_string();
        let (client, batch) = (client.clone(), Arc::clone(&batch));
        writers.push(tokio::spawn(async move {
            for _ in 0..events / BATCH / 4 {
                while let Err(error) = client.emit(&run_id, &batch).await {
                    anyhow::ensure!(error.kind.is_retryable(), "the big log cannot be written: {error}");
                }
            }
            Ok(())
        }));
    }
    for writer in writers {
        writer.await??;
    }
    Ok(())
}

/// The process that floods.
struct Attacker {
    child: Child,
    said: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Attacker {
    fn start(kind: Kind, server: &Server, scale: Scale) -> anyhow::Result<Self> {
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).arg(std::env::current_exe()?).arg(attack::FLAG).arg(kind.name());
        command.arg(server.address.to_string()).arg(token("mallory")?).arg(if scale.small { "small" } else { "full" });
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let said = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self { child, said })
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let line = timeout(PREPARED_MAX, self.said.next_line()).await.context("the flood says nothing")??;
        line.context("the flood has ended by itself")
    }

    /// Waits until it has begun, and returns what it has prepared.
    async fn prepared(&mut self) -> anyhow::Result<String> {
        self.line().await
    }

    /// Ends it, and returns its results.
    async fn stop(mut self) -> anyhow::Result<String> {
        let mut input = self.child.stdin.take().context("no input")?;
        input.write_all(b"stop\n").await?;
        let said = self.line().await?;
        self.child.wait().await?;
        Ok(said)
    }
}

/// A job of the agent that takes its time.
fn slow() -> CreateRun {
    let (agent, input) = (Some(Name::trusted("slow")), Some(Json::of(&"go")));
    CreateRun { agent, input, start: Some(false), ..CreateRun::default() }
}
