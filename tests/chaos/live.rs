//! Tokens between servers: readers at other servers than the writers, while any of them is killed.
//!
//! Each run is told messages at one server and read at the two others. A token is the time at which it was sent, so every
//! reader knows how old it is. A writer whose server is killed goes on at the next one in the middle of its message. With
//! NATS between the servers, it is killed as well.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use runreel::client::Client;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    judge::Run,
    nats_server::NatsServer,
    progress,
    reader::Target,
    stage::{Stage, Verdict, percentile},
    writer::Traffic,
};

const SERVERS: usize = 3;
const RUNS: usize = 6;
/// Tokens of a message, and the pause after each, milliseconds.
const TOKENS: std::ops::Range<u32> = 20..120;
const TOKEN_MS: std::ops::Range<u64> = 5..35;
/// Tokens between two kills.
const TOKENS_MIN: u64 = 200;
const TOKENS_WAIT_MAX: Duration = Duration::from_mins(1);
const FINISH_MAX: Duration = Duration::from_mins(1);
/// After the last fault, the tokens that it has delayed are read within this time.
const SETTLE: Duration = Duration::from_secs(2);

/// With NATS, half of the tokens are read in less.
const SOON: Duration = Duration::from_millis(80);

/// Measures for a while how old tokens are, then kills servers, and NATS if there is to be one.
pub(crate) async fn live(
    program: &Path,
    seed: u64,
    readers: usize,
    (kills, nats_kills): (usize, Option<usize>),
    (quiet, age_max): (Duration, Duration),
) -> anyhow::Result<Verdict> {
    let mut nats = match nats_kills.map(|_| NatsServer::start()).transpose() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Verdict::cannot(&error.to_string())),
        started => started?,
    };
    let url = nats.as_ref().map(NatsServer::url).unwrap_or_default();
    let flags = ["--live", url.as_str()];
    let mut stage = Stage::open(program, SERVERS, RUNS, seed, if nats.is_some() { &flags } else { &[] }).await?;
    for reader in 0..readers {
        let run = reader % RUNS;
        let server = (run + 1 + reader / RUNS % (SERVERS - 1)) % SERVERS;
        stage.add_reader(server, Target::Run(run), reader % 5 == 4);
    }
    let stop = CancellationToken::new();
    let talkers: Vec<JoinHandle<()>> = (0..RUNS).map(|run| talk(&stage, run, &stop)).collect::<anyhow::Result<_>>()?;
    tokens(&stage, TOKENS_MIN).await?;
    take_ages(&stage);
    sleep(quiet).await;
    let mut verdict = Verdict::default();
    let ages = take_ages(&stage);
    tell_ages(&mut verdict, &ages, "undisturbed");
    let is_due = !ages.is_empty() && percentile(&ages, 990) < age_max;
    verdict.require(is_due, || format!("of a hundred tokens more than one is read after more than {age_max:?}"));
    verdict.require(nats.is_none() || percentile(&ages, 500) < SOON, || "texts do not come by NATS".to_owned());
    let mut rng = StdRng::seed_from_u64(seed);
    if let Some(nats) = &mut nats {
        kill_nats(&stage, nats, nats_kills.unwrap_or_default(), quiet, &mut verdict).await?;
    }
    for kill in 0..kills {
        tokens(&stage, TOKENS_MIN).await?;
        let server = &mut stage.servers[rng.random_range(0..SERVERS)];
        server.kill()?;
        server.spawn()?;
        server.ready().await?;
        progress(format_args!("kill {} of {kills}", kill + 1))?;
    }
    tokens(&stage, TOKENS_MIN).await?;
    tell_ages(&mut verdict, &take_ages(&stage), "under kills");
    stop.cancel();
    for talker in talkers {
        timeout(FINISH_MAX, talker).await.context("a writer does not finish")??;
    }
    verdict.fact(format!("{kills} kills, {} tokens acknowledged", stage.traffic.deltas.load(Ordering::Relaxed)));
    let judged = stage.judge().await?;
    verdict.tally += judged.tally;
    verdict.violations.extend(judged.violations);
    verdict.facts.extend(judged.facts);
    stage.close(&mut verdict).await?;
    Ok(verdict)
}

/// Every third time it only stands still, which its clients do not notice.
async fn kill_nats(
    stage: &Stage,
    nats: &mut NatsServer,
    kills: usize,
    quiet: Duration,
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    for kill in 0..kills {
        let stands_still = kill % 3 == 2;
        if stands_still { nats.stand_still(true) } else { nats.kill() }?;
        tokens(stage, TOKENS_MIN / 2).await?;
        if stands_still { nats.stand_still(false) } else { nats.spawn() }?;
        tokens(stage, TOKENS_MIN / 2).await?;
        progress(format_args!("kill {} of NATS", kill + 1))?;
    }
    tell_ages(verdict, &take_ages(stage), &format!("under {kills} faults of NATS"));
    sleep(SETTLE).await;
    take_ages(stage);
    sleep(quiet).await;
    let ages = take_ages(stage);
    tell_ages(verdict, &ages, "afterwards");
    verdict.require(!ages.is_empty() && percentile(&ages, 500) < SOON, || "texts do not come by NATS again".to_owned());
    Ok(())
}

/// Waits for so many tokens more.
async fn tokens(stage: &Stage, count: u64) -> anyhow::Result<()> {
    let told = || stage.traffic.deltas.load(Ordering::Relaxed);
    let enough = told() + count;
    let wait = async {
        while told() < enough {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TOKENS_WAIT_MAX, wait).await.context("no tokens are accepted")
}

/// The ages of all tokens that were read since the last call, in order.
fn take_ages(stage: &Stage) -> Vec<Duration> {
    let mut ages: Vec<Duration> =
        stage.readers.iter().flat_map(|reader| std::mem::take(&mut reader.seen().ages)).collect();
    ages.sort_unstable();
    ages
}

fn tell_ages(verdict: &mut Verdict, ages: &[Duration], when: &str) {
    let [half, most, last] = [500, 990, 1_000].map(|of| percentile(ages, of).as_millis());
    let readings = ages.len();
    verdict.fact(format!(
        "{when} {readings} tokens read {half} ms (median), {most} ms (p99), {last} ms (max) after they were sent"
    ));
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The ages of the tokens in a piece of text; those cut at its ends do not count.
pub(crate) fn ages_of(text: &str) -> Vec<Duration> {
    let now = now_us();
    let whole = text.split('<').skip(1).filter_map(|token| token.strip_suffix('>')?.parse::<u64>().ok());
    whole.map(|sent| Duration::from_micros(now.saturating_sub(sent))).collect()
}

/// Tells a run one message after the other until `stop`.
fn talk(stage: &Stage, run: Run, stop: &CancellationToken) -> anyhow::Result<JoinHandle<()>> {
    let clients = (0..SERVERS).map(|server| stage.client((run + server) % SERVERS)).collect::<anyhow::Result<_>>()?;
    let talker =
        Talker { clients, at: 0, run, run_id: stage.run_ids[run].clone(), traffic: Arc::clone(&stage.traffic) };
    Ok(tokio::spawn(talker.run(StdRng::seed_from_u64(stage.seed ^ (run as u64 + 1) << 24), stop.clone())))
}

struct Talker {
    /// Of all servers, its own first.
    clients: Vec<Client>,
    at: usize,
    run: Run,
    run_id: String,
    traffic: Arc<Traffic>,
}

impl Talker {
    async fn run(mut self, mut rng: StdRng, stop: CancellationToken) {
        for number in 0_u64.. {
            if stop.is_cancelled() {
                return;
            }
            self.at = 0;
            let (span, mut whole) = (format!("m{number}"), String::new());
            for _ in 0..rng.random_range(TOKENS) {
                let token = format!("<{}>", now_us());
                whole.push_str(&token);
                // What a server may have taken is not sent again: the end of the message has all of it.
                self.emit(&[json!({ "type": "message.delta", "span_id": span, "payload": { "text": token } })]).await;
                sleep(Duration::from_millis(rng.random_range(TOKEN_MS))).await;
            }
            let event_id = format!("r{}-{number}", self.run);
            let payload = json!({ "role": "assistant", "text": whole });
            let end = json!({ "type": "message.completed", "span_id": span, "event_id": event_id, "payload": payload });
            while !self.emit(std::slice::from_ref(&end)).await {
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Whether the server accepted it; if not, the next one is asked next.
    async fn emit(&mut self, events: &[Value]) -> bool {
        self.traffic.attempt(self.run, events);
        let answer = self.clients[self.at].emit(&self.run_id, events).await;
        match &answer {
            Ok(ack) => self.traffic.answered(self.run, events, ack),
            Err(_) => self.at = (self.at + 1) % SERVERS,
        }
        answer.is_ok()
    }
}
