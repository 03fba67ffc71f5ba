//! The disk of artifacts and saved sessions gets full, and fails: what was acknowledged stays, what is refused says why, and
//! the log, which is elsewhere, goes on.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    disk::Disk,
    progress,
    site::{Home, Server, Site, http_client},
    stage::{END_MAX, Verdict},
};

/// Uploads and saves before each fault, and under it.
const MANY: usize = 200;
/// Bytes of an upload: those of all rounds fit.
const UPLOAD_BYTES: usize = 20_000;
/// What is refused must be answered within this time, and accepted again within this time after the end.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What happens to the disk.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Full,
    ReadOnly,
}

/// A client, and what was acknowledged to it.
struct Keeper {
    client: reqwest::Client,
    url: String,
    run: String,
    sent: usize,
    /// Artifacts by id, each with the number that its bytes consist of.
    artifacts: Vec<(String, usize)>,
    /// The number that the saved session consists of.
    saved: Option<usize>,
}

pub(crate) async fn run(program: &Path, rounds: usize) -> anyhow::Result<Verdict> {
    let site = Site::new()?;
    let disk = match Disk::mount(&site).await {
        Ok(disk) => disk,
        Err(error) => return Ok(Verdict::cannot(&format!("no disk can be mounted: {error:#}"))),
    };
    let folder = |name: &str| disk.folder.join(name).display().to_string();
    let (artifacts, sessions) = (folder("artifacts"), folder("sessions"));
    let flags = ["--artifacts-dir", artifacts.as_str(), "--sessions-dir", &sessions];
    let mut server = Server::start(program, &site, Home::Embedded, 0, &flags).await?;
    let mut keeper = Keeper::new(server.url()).await?;
    let mut verdict = Verdict::default();
    for round in 0..rounds {
        for fault in [Fault::Full, Fault::ReadOnly] {
            progress(format_args!("{fault:?}, round {}", round + 1))?;
            let before = keeper.keep(MANY, &[]).await?;
            verdict
                .require(before.refused == 0, || format!("{} were refused before anything was wrong", before.refused));
            match fault {
                Fault::Full => disk.fill()?,
                Fault::ReadOnly => disk.fail().await?,
            }
            let answers = match fault {
                Fault::Full => &["storage_full"][..],
                Fault::ReadOnly => &["storage_unavailable", "storage_full"],
            };
            let under = keeper.keep(MANY, answers).await?;
            verdict.require(under.refused > 0, || format!("{fault:?}: nothing was refused, which proves nothing"));
            verdict.require(under.slowest <= ANSWER_MAX, || format!("{fault:?}: an answer after {:?}", under.slowest));
            keeper.emit().await.with_context(|| format!("{fault:?}: the log does not go on"))?;
            keeper.look().await.with_context(|| format!("{fault:?}: what was acknowledged"))?;
            match fault {
                Fault::Full => disk.free()?,
                Fault::ReadOnly => {
                    // A disk that is in use cannot be taken out.
                    ensure!(server.terminate(END_MAX).await?.is_some(), "the server has not ended");
                    disk.repair().await?;
                    server.spawn()?;
                    server.ready().await?;
                }
            }
            let ended = Instant::now();
            while keeper.keep(1, answers).await?.refused > 0 {
                ensure!(ended.elapsed() < ANSWER_MAX, "{fault:?}: refused {:?} after its end", ended.elapsed());
                sleep(Duration::from_millis(20)).await;
            }
            keeper.look().await.with_context(|| format!("after {fault:?}: what was acknowledged"))?;
            verdict.fact(format!("{fault:?}: {} of {} refused under it", under.refused, 2 * MANY));
        }
    }
    verdict.fact(format!("{} artifacts acknowledged, all there", keeper.artifacts.len()));
    verdict.violations.extend(server.verify().await?);
    let status = server.terminate(END_MAX).await?;
    verdict.require(status.is_some_and(|status| status.success()), || format!("the server ended with {status:?}"));
    verdict.violations.extend(server.panics());
    Ok(verdict)
}

/// What came of some uploads and saves.
#[derive(Default)]
struct Kept {
    refused: usize,
    slowest: Duration,
}

impl Keeper {
    async fn new(url: String) -> anyhow::Result<Self> {
        let client = http_client()?;
        let mut keeper = Self { client, url, run: String::new(), sent: 0, artifacts: Vec::new(), saved: None };
        let (_, run) = keeper.ask(Method::POST, "/api/runs", json!({ "agent": "keeper" }).to_string().into()).await?;
        run["run_id"].as_str().context("a run without an id")?.clone_into(&mut keeper.run);
        Ok(keeper)
    }

    async fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<(StatusCode, Value)> {
        let asked =
            self.client.request(method, format!("{}{path}", self.url)).header("content-type", "application/json");
        let answer = asked.body(body).send().await?;
        Ok((answer.status(), answer.json().await?))
    }

    /// Uploads and saves so often; whatever is refused must have one of these codes.
    async fn keep(&mut self, times: usize, refusals: &[&str]) -> anyhow::Result<Kept> {
        let mut kept = Kept::default();
        for _ in 0..times {
            self.sent += 1;
            let number = self.sent;
            for is_upload in [true, false] {
                let began = Instant::now();
                let (status, answer) = if is_upload {
                    let path = format!("/api/runs/{}/artifacts?name=n{number}", self.run);
                    self.ask(Method::POST, &path, content(number)).await?
                } else {
                    let messages = json!([{ "role": "user", "content": format!("{number} ").repeat(20_000) }]);
                    let file = json!({ "thread": { "messages": messages } }).to_string();
                    self.ask(Method::PUT, "/api/saved-sessions/kept", file.into()).await?
                };
                kept.slowest = kept.slowest.max(began.elapsed());
                if !status.is_success() {
                    let code = answer["code"].as_str().unwrap_or_default();
                    ensure!(refusals.contains(&code), "refused with {status}: {answer}");
                    kept.refused += 1;
                } else if is_upload {
                    let id = answer["artifact_id"].as_str().context("an artifact without an id")?;
                    self.artifacts.push((id.to_owned(), number));
                } else {
                    self.saved = Some(number);
                }
            }
        }
        Ok(kept)
    }

    async fn emit(&self) -> anyhow::Result<()> {
        let event = json!({ "type": "log.info", "payload": { "message": "the log goes on" } }).to_string();
        let (status, answer) = self.ask(Method::POST, &format!("/api/runs/{}/events", self.run), event.into()).await?;
        ensure!(status == StatusCode::OK, "{status}: {answer}");
        Ok(())
    }

    /// Everything acknowledged must be there, byte for byte.
    async fn look(&self) -> anyhow::Result<()> {
        for (id, number) in &self.artifacts {
            let answer = self.client.get(format!("{}/api/artifacts/{id}", self.url)).send().await?;
            ensure!(answer.status() == StatusCode::OK, "artifact {number}: {}", answer.status());
            ensure!(answer.bytes().await? == content(*number), "artifact {number} is another");
        }
        if let Some(number) = self.saved {
            let (status, file) = self.ask(Method::GET, "/api/saved-sessions/kept", Vec::new()).await?;
            let text = file["thread"]["messages"][0]["content"].as_str().unwrap_or_default();
            ensure!(text.starts_with(&format!("{number} ")), "the saved session: {status}, not save {number}");
        }
        Ok(())
    }
}

fn content(number: usize) -> Vec<u8> {
    format!("{number:09} ").into_bytes().repeat(UPLOAD_BYTES / 10)
}
