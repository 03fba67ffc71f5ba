//! Two servers on one database, of which one has a clock that is wrong by minutes or by months.
//!
//! The first server is in the middle of its jobs, each with a lease and a slow tool call, when the second one starts. A
//! server that believes these leases have lapsed takes live jobs and repeats their calls: each call writes a line, an
//! external effect that no checkpoint undoes. Where the clock is ahead it is the second server's, where it is behind
//! the first one's, whose leases then look old. Only that process sees the wrong time, not Postgres.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use runreel::{
    client::Client,
    domain::{id::Name, json::Json, run::Status},
    wire::runs::CreateRun,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    cluster::{Cluster, url_at},
    progress,
    self_check::Plant,
    site::{Home, Server, Site},
    stage::{END_MAX, Verdict},
};

pub(crate) const MISSING: &str = "libfaketime is not installed (apt-get install libfaketime)";
/// How wrong a clock is, in libfaketime's format.
const SKEWS: [&str; 5] = ["+60s", "-60s", "+300d", "-300d", "+0s"];
/// Less than the clocks differ, and more than a job takes: a server that loses its lease notices too late.
const LEASE_MS: &str = "25000";
/// How long the second server has for a theft while all calls of the first one are in progress.
const TEMPTED: Duration = Duration::from_secs(2);
/// The calls end when this file exists.
const GO: &str = "work/go";
/// Longest wait for all jobs of one clock.
const JOBS_MAX: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) async fn run(program: &Path, skews: usize, jobs: usize) -> anyhow::Result<Verdict> {
    let Some(library) = library() else {
        return Ok(Verdict::cannot(MISSING));
    };
    let mut verdict = Verdict::default();
    for skew in SKEWS.iter().take(skews) {
        one(program, &library, skew, jobs, &mut verdict).await.with_context(|| format!("with a clock of {skew}"))?;
        progress(format_args!("{skew}"))?;
    }
    Ok(verdict)
}

/// The variant for programs with threads, wherever a distribution installs it.
pub(crate) fn library() -> Option<PathBuf> {
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
    let flags = ["--config", &config, "--poll-ms", "100", "--lease-ms", LEASE_MS];
    let library_name = library.to_str().context("the library's name is no text")?;
    let wrong = [("LD_PRELOAD", library_name), ("FAKETIME", skew), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    let start = async |number: usize, is_wrong: bool| {
        let env: &[(&str, &str)] = if is_wrong { &wrong } else { &[] };
        let server =
            Server::start_with(program, &site, Home::Shared(url_at(cluster.address())), number, &flags, env).await?;
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid()))?;
        ensure!(maps.contains("libfaketime") == is_wrong, "the clock of server {number} is not what it should be");
        anyhow::Ok(server)
    };
    let is_behind = skew.starts_with('-');
    let first = start(0, is_behind).await?;
    let client = Client::new(&first.url(), None)?;
    let (mut runs, began) = (Vec::new(), Instant::now());
    for job in 0..jobs {
        let new = CreateRun {
            agent: Some(Name::trusted(&format!("agent-{job}"))),
            start: Some(false),
            input: Some(Json::of(&"go")),
            ..CreateRun::default()
        };
        let run = loop {
            match client.create_run(&new).await {
                // A server in another month has to create its partition first.
                Err(error) if error.kind.is_retryable() && began.elapsed() < JOBS_MAX => sleep(LOOK_EVERY).await,
                run => break run,
            }
        };
        let run = run.with_context(|| format!("job {job}"))?;
        runs.push(run.run_id.to_string());
    }
    let under_way = async {
        while (0..jobs).any(|job| effects(&site, job) == 0) {
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(JOBS_MAX, under_way).await.context("the jobs do not begin")?;
    let second = start(1, !is_behind).await?;
    sleep(TEMPTED).await;
    std::fs::write(site.file(GO), "")?;
    let (mut statuses, began) = (vec![Status::Queued], Instant::now());
    while began.elapsed() < JOBS_MAX && statuses.iter().any(|status| !status.is_terminal()) {
        sleep(LOOK_EVERY).await;
        statuses = look(&client, &runs).await?;
    }
    // A thief may be a moment behind.
    sleep(Duration::from_millis(500)).await;
    let counts: Vec<_> = (0..jobs).map(|job| effects(&site, job)).collect();
    let repeated = counts.iter().filter(|count| **count > 1).count();
    verdict.fact(format!("{skew}: {repeated} of {jobs} effects repeated"));
    verdict.violations.extend(judge(&statuses, &counts).into_iter().take(4).map(|wrong| format!("{skew}: {wrong}")));
    for mut server in [first, second] {
        let status = server.terminate(END_MAX).await?;
        verdict.require(status.is_some_and(|status| status.success()), || format!("a server ended with {status:?}"));
        verdict.violations.extend(server.panics());
    }
    Ok(())
}

async fn look(client: &Client, runs: &[String]) -> anyhow::Result<Vec<Status>> {
    let mut statuses = Vec::new();
    for run_id in runs {
        statuses.push(client.run(run_id).await?.status);
    }
    Ok(statuses)
}

/// Each job must be completed, and its effect must have happened once.
fn judge(statuses: &[Status], effects: &[usize]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (job, (status, count)) in statuses.iter().zip(effects).enumerate() {
        if *status != Status::Completed {
            wrong.push(format!("job {job} is {}", status.as_str()));
        }
        if *count != 1 {
            wrong.push(format!("the effect of job {job} happened {count} times"));
        }
    }
    wrong
}

pub(crate) fn plants() -> Vec<Plant> {
    let statuses = |status| vec![Status::Completed, status];
    vec![
        Plant {
            name: "jobs whose effects happened once",
            seen: judge(&statuses(Status::Completed), &[1, 1]).is_empty(),
        },
        Plant { name: "an effect that is repeated", seen: judge(&statuses(Status::Completed), &[1, 2]).len() == 1 },
        Plant { name: "an effect that is missing", seen: judge(&statuses(Status::Completed), &[0, 1]).len() == 1 },
        Plant { name: "a job that is given up", seen: judge(&statuses(Status::Failed), &[1, 1]).len() == 1 },
    ]
}

/// One agent per job, so that each effect has its own file.
fn write_config(site: &Site, jobs: usize) -> anyhow::Result<String> {
    // Every job holds its command until all have begun.
    let mut config = "[tools.shell]\nroot = \"work\"\napproval = false\nexclusive = false\n".to_owned();
    for job in 0..jobs {
        let script = format!(
            "[[turns]]\ntool_calls = [{{ name = \"shell\", args = {{ command = \"echo x >> effects-{job}; until [ -e go ]; do sleep 0.1; done\" }} }}]\n\
             [[turns]]\ntext = \"done\"\n"
        );
        std::fs::write(site.file(&format!("script-{job}.toml")), script)?;
        write!(config, "[agents.agent-{job}]\nmodel = \"script:script-{job}.toml\"\ntools = [\"shell\"]\n")?;
    }
    let file = site.file("runreel.toml");
    std::fs::write(&file, config)?;
    Ok(file.to_str().context("the folder's name is no text")?.to_owned())
}

/// How often a job's effect happened.
fn effects(site: &Site, job: usize) -> usize {
    std::fs::read_to_string(site.file(&format!("work/effects-{job}"))).unwrap_or_default().lines().count()
}
