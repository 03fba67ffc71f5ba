//! What no client would send, at every door that takes bytes: each answer is a refusal that is defined, or what was sent is
//! what is read, and either comes within a second.
//!
//! Inputs are valid ones that are changed at random ([`change`]), sent to the real program. Nothing steers them by what they
//! reach, as `cargo fuzz` does with a nightly compiler; the doors are reached through all that stands before them instead.

mod answer;
mod change;
mod doors;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use clap::ValueEnum as _;
use rand::{SeedableRng as _, rngs::StdRng};
use tokio::time::{Instant, timeout};

use self::doors::{Door, Doors};
use crate::{
    floods::{SECRET, token},
    progress,
    site::{Home, Server, Site},
    stage::{END_MAX, Verdict},
};

/// Senders at a time.
const SENDERS: u64 = 4;
/// After it, what comes of an input is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Violations of one door that are listed.
const LISTED_MAX: usize = 5;

/// What came of the inputs at one door.
#[derive(Debug, Default)]
struct Count {
    cases: u64,
    answers: BTreeMap<String, u64>,
    accepted: u64,
    violations: Vec<String>,
}

/// Sends to each door for so long.
pub(crate) async fn run(program: &Path, seed: u64, each: Duration) -> anyhow::Result<Verdict> {
    let site = Site::new()?;
    let sessions = site.file("sessions");
    let flags = ["--auth", "jwt", "--sessions-dir", sessions.to_str().context("the folder's name is no text")?];
    let mut server =
        Server::start_with(program, &site, Home::Embedded, 0, &flags, &[("RUNREEL_JWT_SECRET", SECRET)]).await?;
    let doors = Arc::new(Doors::open(&server.url(), token("fuzz")?).await?);
    let mut verdict = Verdict::default();
    for door in Door::value_variants() {
        progress(format_args!("{door:?}"))?;
        let count = Arc::new(Mutex::new(Count::default()));
        let senders = (0..SENDERS).map(|sender| {
            let (doors, count) = (Arc::clone(&doors), Arc::clone(&count));
            tokio::spawn(send(doors, *door, seed.wrapping_mul(31).wrapping_add(sender), each, count))
        });
        for sender in senders.collect::<Vec<_>>() {
            sender.await??;
        }
        let count = std::mem::take(&mut *count.lock().unwrap_or_else(PoisonError::into_inner));
        let answers: Vec<String> = count.answers.iter().map(|(answer, times)| format!("{answer} × {times}")).collect();
        verdict.fact(format!(
            "{door:?}: {} cases, {}, the longest {} ms",
            count.cases,
            answers.join(", "),
            doors.waits.longest_ms()
        ));
        let refused = count.cases - count.accepted;
        verdict.require(count.accepted > 0 && refused > 0, || format!("{door:?}: all accepted, or all refused"));
        verdict.violations.extend(count.violations.iter().take(LISTED_MAX).map(|text| format!("{door:?}: {text}")));
    }
    verdict.violations.extend(server.verify().await?);
    let status = server.terminate(END_MAX).await?;
    verdict.require(status.is_some_and(|status| status.success()), || {
        format!("the server ended with {status:?}; its log ends with\n{}", server.log())
    });
    verdict.violations.extend(server.panics());
    Ok(verdict)
}

async fn send(
    doors: Arc<Doors>,
    door: Door,
    seed: u64,
    each: Duration,
    count: Arc<Mutex<Count>>,
) -> anyhow::Result<()> {
    let (mut rng, end) = (StdRng::seed_from_u64(seed), Instant::now() + each);
    while Instant::now() < end {
        let answer = timeout(PATIENCE, doors.try_once(door, &mut rng)).await.context("no answer").flatten();
        let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
        count.cases += 1;
        match answer {
            Ok(answer) => {
                *count.answers.entry(answer.word).or_default() += 1;
                count.accepted += u64::from(answer.is_accepted);
                count.violations.extend(answer.violation.map(|what| format!("{what}: {}", answer.input)));
            }
            Err(error) => count.violations.push(format!("{error:#}")),
        }
    }
    Ok(())
}
