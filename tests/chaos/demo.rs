//! `runreel demo` under faults: its agents work in a separate process, for a server that is killed again and again,
//! while readers whose connections are cut follow each run and the tree.
//!
//! The harness writes nothing here, so the judge compares what readers got with the table, the log of each run with
//! itself ([`judge_log`]), and what the demo printed with what is stored.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::Context as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use runreel::client::Client;
use serde_json::Value;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use crate::{
    progress,
    reader::Target,
    stage::{Stage, Verdict},
    table,
    talk::{judge::judge_log, truth},
};

/// The supervisor and its four workers.
const RUNS: usize = 5;
/// The tree they inspect.
const TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
/// Longest wait for the workers' runs.
const BEGIN_MAX: Duration = Duration::from_mins(1);
/// Longest wait for the demo's end.
const END_MAX: Duration = Duration::from_mins(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A kill comes at most this long after the server is ready again.
const LATER_MS: std::ops::Range<u64> = 0..700;
/// The demo's pace, milliseconds: this much more for each kill, so that it lasts longer than all of them.
const PACE_MS: (usize, usize) = (40, 6);
/// How many violations of one run are printed.
const SHOWN: usize = 4;

pub(crate) async fn run(program: &Path, seed: u64, kills: usize) -> anyhow::Result<Verdict> {
    let mut stage = Stage::open(program, 1, 0, seed, &["--poll-ms", "50"]).await?;
    let demo = tokio::spawn(demo(program, &stage, PACE_MS.0 + PACE_MS.1 * kills)?.wait_with_output());
    let client = stage.client(0)?;
    let began = timeout(BEGIN_MAX, runs(&client)).await.context("the demo has no workers")?;
    stage.is_about(began);
    for target in (0..RUNS).map(Target::Run).chain([Target::Tree]).flat_map(|target| [target; 3]) {
        stage.add_reader(0, target, true);
    }
    let (mut rng, mut while_at_work) = (StdRng::seed_from_u64(seed), 0);
    for number in 0..kills {
        sleep(Duration::from_millis(rng.random_range(LATER_MS))).await;
        let lead = client.run(&stage.run_ids[0]).await?;
        while_at_work += usize::from(lead.ended_at.is_none());
        let server = &mut stage.servers[0];
        server.kill()?;
        server.spawn()?;
        server.ready().await?;
        progress(format_args!("{} of {kills} kills", number + 1))?;
    }
    let began = Instant::now();
    let shown = timeout(END_MAX, demo).await.context("the demo does not end")???;
    progress(format_args!("the demo ended {} s after the last kill", began.elapsed().as_secs()))?;
    let mut verdict = stage.judge_ended().await?;
    verdict.require(while_at_work == kills, || format!("only {while_at_work} of {kills} kills were in time"));
    verdict.require(shown.status.success(), || {
        format!("the demo ended with {}: {}", shown.status, String::from_utf8_lossy(&shown.stderr))
    });
    let lead = client.run(&stage.run_ids[0]).await?;
    let stored: Option<Value> = lead.output.and_then(|output| output.member("response"));
    let (printed, stored) = (String::from_utf8_lossy(&shown.stdout), stored.as_ref().and_then(Value::as_str));
    verdict.require(Some(printed.trim()) == stored.map(str::trim), || format!("{printed:?} is not {stored:?}"));
    let mut database = table::connect(&stage.site).await?;
    truth::settled(&mut database).await?;
    for run_id in &stage.run_ids {
        let log = truth::log(&mut database, run_id).await?;
        let wrong = judge_log(&log.iter().collect::<Vec<_>>()).into_iter().take(SHOWN);
        verdict.violations.extend(wrong.map(|wrong| format!("the run {run_id}: {wrong}")));
    }
    drop(database);
    verdict.fact(format!("{kills} kills in one demo of {RUNS} runs"));
    stage.close(&mut verdict).await?;
    Ok(verdict)
}

fn demo(program: &Path, stage: &Stage, pace_ms: usize) -> anyhow::Result<Child> {
    let mut command = Command::new(program);
    command.args(["demo", "--exit", "--answer-after", "1", "--url", &stage.servers[0].url()]);
    command.arg("--pace").arg(pace_ms.to_string()).arg("--data-dir").arg(stage.site.data_dir()).arg(TREE);
    command.env_remove("RUNREEL_TOKEN").env_remove("RUNREEL_TOKEN_FILE").env("NO_COLOR", "1").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("the demo does not start")
}

/// The runs of the demo, once all exist; the supervisor's first.
async fn runs(client: &Client) -> Vec<String> {
    loop {
        let mut runs = client.runs(&[]).await.map_or_else(|_| Vec::new(), |page| page.runs);
        if runs.len() == RUNS {
            runs.sort_by_key(|run| run.parent_run_id.is_some());
            return runs.into_iter().map(|run| run.run_id.to_string()).collect();
        }
        sleep(LOOK_EVERY).await;
    }
}
