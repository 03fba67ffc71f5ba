//! Two servers on one database, of which one has a clock that is wrong by minutes or by months.
//!
//! Both carry out the same agents. Each job makes one request to the harness, which takes its time to answer: an effect
//! outside, under a lease that has to be renewed meanwhile. Whoever believes too early that a lease has run out takes a
//! live job and makes the request again. Only the server's process sees the wrong time, not Postgres.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use runreel::client::Client;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    cluster::{Cluster, url_at},
    progress,
    reader::lock,
    self_check::Plant,
    site::{Home, Server, Site},
    stage::{END_MAX, Verdict},
};

/// How wrong the second server's clock is, as libfaketime takes it.
const SKEWS: [&str; 5] = ["+60s", "-60s", "+300d", "-300d", "+0s"];
/// How long the harness takes to answer: longer than the lease.
const EFFECT: Duration = Duration::from_secs(4);
const LEASE_MS: &str = "2000";
/// Longest wait for all jobs of one clock.
const JOBS_MAX: Duration = Duration::from_mins(1);
/// Between two jobs, so that both servers get some.
const PAUSE: Duration = Duration::from_millis(60);

/// Which effects happened how often.
type Effects = Arc<Mutex<BTreeMap<String, usize>>>;

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
    folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).chain(["/usr/lib/faketime/libfaketimeMT.so.1".into()]).find(|file| file.exists())
}

async fn one(program: &Path, library: &Path, skew: &str, jobs: usize, verdict: &mut Verdict) -> anyhow::Result<()> {
    let effects = Effects::default();
    let (address, _outside) = Outside::open(Arc::clone(&effects)).await?;
    let site = Site::new()?;
    let config = write_config(&site, jobs, address)?;
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
    sleep(EFFECT / 4).await;
    let counts: Vec<usize> =
        (0..jobs).map(|job| lock(&effects).get(&format!("/{job}")).copied().unwrap_or_default()).collect();
    let complaints = judge(&statuses, &counts);
    let repeated = counts.iter().filter(|count| **count > 1).count();
    verdict.fact(format!("{skew}: {repeated} of {jobs} effects repeated"));
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

/// Each job is completed, and its effect happened once.
fn judge(statuses: &[String], effects: &[usize]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (job, (status, count)) in statuses.iter().zip(effects).enumerate() {
        if status != "completed" {
            wrong.push(format!("job {job} is {status}"));
        }
        if *count != 1 {
            wrong.push(format!("the effect of job {job} happened {count} times"));
        }
    }
    wrong
}

pub(crate) fn plants() -> Vec<Plant> {
    let statuses = |status: &str| vec!["completed".to_owned(), status.to_owned()];
    vec![
        Plant { name: "jobs whose effects happened once", seen: judge(&statuses("completed"), &[1, 1]).is_empty() },
        Plant { name: "an effect that is repeated", seen: judge(&statuses("completed"), &[1, 2]).len() == 1 },
        Plant { name: "an effect that is missing", seen: judge(&statuses("completed"), &[0, 1]).len() == 1 },
        Plant { name: "a job that is given up", seen: judge(&statuses("failed"), &[1, 1]).len() == 1 },
    ]
}

/// One agent for each job, so that each effect has a name.
fn write_config(site: &Site, jobs: usize, address: SocketAddr) -> anyhow::Result<String> {
    let mut config = format!("[tools.fetch]\nallow = [\"{address}\"]\nallow_private = [\"127.0.0.1\"]\ntimeout_s = 30\n");
    for job in 0..jobs {
        let script = format!(
            "[[turns]]\ntool_calls = [{{ name = \"fetch\", args = {{ url = \"http://{address}/{job}\" }} }}]\n\
             [[turns]]\ntext = \"done\"\n"
        );
        std::fs::write(site.file(&format!("script-{job}.toml")), script)?;
        write!(config, "[agents.agent-{job}]\nmodel = \"script:script-{job}.toml\"\ntools = [\"fetch\"]\n")?;
    }
    let file = site.file("runreel.toml");
    std::fs::write(&file, config)?;
    Ok(file.to_str().context("the folder's name is no text")?.to_owned())
}

/// The world outside: a web server that counts what is asked of it and is in no hurry.
struct Outside(JoinHandle<()>);

impl Outside {
    async fn open(effects: Effects) -> anyhow::Result<(SocketAddr, Self)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&effects)));
            }
        });
        Ok((address, Self(task)))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn answer(mut stream: TcpStream, effects: Effects) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    *lock(&effects).entry(path).or_default() += 1;
    sleep(EFFECT).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await
}
