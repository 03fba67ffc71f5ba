//! Two servers on one database, of which one has a clock that is wrong by minutes or by months.
//!
//! Both carry out the same agents. Each job writes line after line into a file of its own, with pauses
//! between: effects outside, which no journal takes back. Whoever believes too early that a lease has run
//! out takes a job that is alive, and writes a line again. Only the server's process sees the wrong time, not Postgres.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use runreel::client::Client;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    cluster::{Cluster, url_at},
    progress,
    self_check::Plant,
    site::{Home, Server, Site},
    stage::{END_MAX, Verdict},
};

/// How wrong the second server's clock is, as libfaketime takes it.
const SKEWS: [&str; 5] = ["+60s", "-60s", "+300d", "-300d", "+0s"];
/// Less than the clocks differ, and more than a job takes: whoever loses its lease finds out too late.
const LEASE_MS: &str = "20000";
/// Effects of a job, and the pause before each.
const TURNS: usize = 8;
const TURN_MS: u64 = 400;
/// Longest wait for all jobs of one clock.
const JOBS_MAX: Duration = Duration::from_mins(1);
/// Between two jobs, so that both servers get some.
const PAUSE: Duration = Duration::from_millis(60);

pub(crate) async fn run(program: &Path, skews: usize, jobs: usize) -> anyhow::Result<Verdict> {
    let Some(library) = library() else {
        return Ok(Verdict::cannot("libfaketime is not installed (apt-get install libfaketime)"));
    };
    let mut verdict = Verdict::default();
    for skew in SKEWS.iter().take(skews) {
        one(program, &library, skew, jobs, &mut verdict).await.with_context(|| format!("with a clock of {skew}"))?;
        progress(format_args!("{skew}"))?;
    }
    Ok(verdict)
}

/// The variant for programs with threads, wherever a distribution puts it.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    folders
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"))
        .chain(["/usr/lib/faketime/libfaketimeMT.so.1".into()])
        .find(|file| file.exists())
}

async fn one(program: &Path, library: &Path, skew: &str, jobs: usize, verdict: &mut Verdict) -> anyhow::Result<()> {
    let site = Site::new()?;
    let config = write_config(&site, jobs)?;
    let cluster = Cluster::create(&site.file("cluster"), None).await?;
    let home = || Home::Shared(url_at(cluster.address()));
    let flags = ["--config", &config, "--poll-ms", "100", "--lease-ms", LEASE_MS];
    let right = Server::start(program, &site, home(), 0, &flags).await?;
    let library_name = library.to_str().context("the library's name is no text")?;
    let env = [("LD_PRELOAD", library_name), ("FAKETIME", skew), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    let wrong = Server::start_with(program, &site, home(), 1, &flags, &env).await?;
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", wrong.pid()))?;
    ensure!(maps.contains("libfaketime"), "the second server's clock is not wrong");
    let clients = [Client::new(&right.url(), None)?, Client::new(&wrong.url(), None)?];
    let mut runs = Vec::new();
    for job in 0..jobs {
        let body = json!({ "agent": format!("agent-{job}"), "start": false, "input": "go" });
        let run = clients[job % 2].create_run(&body).await.with_context(|| format!("job {job}"))?;
        runs.push(run["run_id"].as_str().context("a run without an id")?.to_owned());
        sleep(PAUSE).await;
    }
    let mut statuses = vec![String::new(); jobs];
    let began = Instant::now();
    while began.elapsed() < JOBS_MAX && statuses.iter().any(|status| !is_end(status)) {
        for (run_id, status) in runs.iter().zip(&mut statuses).filter(|(_, status)| !is_end(status)) {
            let run = clients[0].run(run_id).await?;
            run["status"].as_str().unwrap_or_default().clone_into(status);
        }
        sleep(Duration::from_millis(100)).await;
    }
    // A thief may be in the middle of it still.
    sleep(Duration::from_millis(TURN_MS) * 2).await;
    let counts: Vec<_> = (0..jobs).map(|job| effects(&site, job)).collect();
    let complaints = judge(&statuses, &counts);
    let repeated = counts.iter().flatten().filter(|count| **count > 1).count();
    verdict.fact(format!("{skew}: {repeated} of {} effects in {jobs} jobs repeated", jobs * TURNS));
    verdict.violations.extend(complaints.into_iter().take(4).map(|complaint| format!("{skew}: {complaint}")));
    for mut server in [right, wrong] {
        let status = server.terminate(END_MAX).await?;
        verdict.require(status.is_some_and(|status| status.success()), || format!("a server ended with {status:?}"));
        verdict.violations.extend(server.panics());
    }
    Ok(())
}

fn is_end(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "cancelled")
}

/// Each job is completed, and each of its effects happened once.
fn judge(statuses: &[String], effects: &[[usize; TURNS]]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (job, (status, counts)) in statuses.iter().zip(effects).enumerate() {
        if status != "completed" {
            wrong.push(format!("job {job} is {status}"));
        }
        if counts.iter().any(|count| *count != 1) {
            wrong.push(format!("the effects of job {job} happened {counts:?} times"));
        }
    }
    wrong
}

pub(crate) fn plants() -> Vec<Plant> {
    let statuses = |status: &str| vec!["completed".to_owned(), status.to_owned()];
    let (once, mut twice, mut never) = ([1; TURNS], [1; TURNS], [1; TURNS]);
    (twice[3], never[TURNS - 1]) = (2, 0);
    vec![
        Plant {
            name: "jobs whose effects happened once",
            seen: judge(&statuses("completed"), &[once, once]).is_empty(),
        },
        Plant { name: "an effect that is repeated", seen: judge(&statuses("completed"), &[once, twice]).len() == 1 },
        Plant { name: "an effect that is missing", seen: judge(&statuses("completed"), &[never, once]).len() == 1 },
        Plant { name: "a job that is given up", seen: judge(&statuses("failed"), &[once, once]).len() == 1 },
    ]
}

/// One agent for each job, so that each effect has a name.
fn write_config(site: &Site, jobs: usize) -> anyhow::Result<String> {
    let mut config = "[tools.files]\nroot = \"work\"\n".to_owned();
    for job in 0..jobs {
        let turn = |turn| {
            format!(
                "[[turns]]\ndelay_ms = {TURN_MS}\ntool_calls = [{{ name = \"files_write\", args = \
                 {{ path = \"effects-{job}\", text = \"{turn}\\n\", mode = \"append\" }} }}]\n"
            )
        };
        let script = (0..TURNS).map(turn).chain(["[[turns]]\ntext = \"done\"\n".to_owned()]).collect::<String>();
        std::fs::write(site.file(&format!("script-{job}.toml")), script)?;
        write!(config, "[agents.agent-{job}]\nmodel = \"script:script-{job}.toml\"\ntools = [\"files\"]\n")?;
    }
    let file = site.file("runreel.toml");
    std::fs::write(&file, config)?;
    Ok(file.to_str().context("the folder's name is no text")?.to_owned())
}

/// How often each effect of a job happened.
fn effects(site: &Site, job: usize) -> [usize; TURNS] {
    let text = std::fs::read_to_string(site.file(&format!("work/effects-{job}"))).unwrap_or_default();
    std::array::from_fn(|turn| text.lines().filter(|line| *line == turn.to_string()).count())
}
