//! The process that floods: it prepares, reports that, floods until it is told to stop, and reports the answers it got.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::ValueEnum;
use runreel::{client::Client, domain::id::Title, wire::runs::CreateRun};
use serde_json::Value;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use super::{emits, holds, reads};
use crate::reader::lock;

/// The first argument of such a process.
pub(crate) const FLAG: &str = "--flood";
/// Connections of a flood of requests.
pub(super) const CONNECTIONS: usize = 32;
const PAUSE: Duration = Duration::from_millis(20);
/// A payload just below the bound for payloads kept in an event, bytes.
pub(super) const PAYLOAD: usize = 65_000;

/// What is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Much open text, then tiny deltas to it.
    OpenText,
    /// Single events.
    Singles,
    /// Batches of 5 000 events.
    Batches,
    /// Streams that nobody reads, of a run with much open text.
    UnreadStreams,
    /// Timelines of a run whose spans have long names.
    Timelines,
    /// Pages of large events.
    Pages,
    /// Frames on runners' sockets that are never finished.
    RunnerFrames,
    /// Streams that nobody reads, on many runs with tokens.
    StalledTokens,
    /// The end of a small owner's feed, beside a big log.
    Feeds,
    /// Uploads that take forever.
    SlowUploads,
    /// Bodies that take forever, by the thousand.
    SlowBodies,
    /// Hundreds of jobs.
    Jobs,
    /// Checkpoints of the maximum size.
    Checkpoints,
    /// Thousands of streams that are read a few bytes at a time, on runs with large live frames.
    DrippingStreams,
    /// Deletions, of runs that are there and of such as are not.
    Deletions,
    /// Large batches whose clients leave before the answer.
    Leavers,
}

impl Kind {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it is part of the quick tier.
    pub(crate) fn is_quick(self) -> bool {
        self == Self::OpenText
    }
}

/// The attacker.
#[derive(Clone)]
pub(super) struct Attacker {
    pub(super) address: SocketAddr,
    pub(super) token: String,
    pub(super) small: bool,
    answers: Arc<Mutex<BTreeMap<String, u64>>>,
}

pub(crate) fn is_wanted() -> bool {
    std::env::args().nth(1).is_some_and(|argument| argument == FLAG)
}

pub(crate) fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let [kind, address, token, scale] = &arguments[..] else {
        anyhow::bail!("a flood is told kind, address, token, scale")
    };
    let kind = Kind::from_str(kind, false).map_err(anyhow::Error::msg)?;
    let attacker =
        Attacker { address: address.parse()?, token: token.clone(), small: scale == "small", answers: Arc::default() };
    // One stuck task must not hold the others up, so at least two threads.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(attacker.run(kind))?;
    runtime.shutdown_background();
    Ok(())
}

impl Attacker {
    async fn run(self, kind: Kind) -> anyhow::Result<()> {
        let mut runs = Vec::new();
        for _ in 0..if matches!(kind, Kind::StalledTokens | Kind::DrippingStreams) { self.pick(10, 40) } else { 1 } {
            let new = CreateRun { title: Some(Title::trusted("flood")), ..CreateRun::default() };
            runs.push(self.client()?.create_run(&new).await?.run_id.to_string());
        }
        match kind {
            Kind::OpenText => emits::open_text(&self, &runs[0], 250).await?,
            Kind::UnreadStreams => emits::open_text(&self, &runs[0], self.pick(20, 128)).await?,
            Kind::Checkpoints => emits::checkpoint(&self, self.pick(2, 30)).await?,
            Kind::Timelines | Kind::Pages => emits::wide_spans(&self, &runs[0], self.pick(200, 2_040)).await?,
            _ => {}
        }
        writeln!(std::io::stdout(), "{}", self.answers())?;
        let flood = async {
            match kind {
                Kind::OpenText => emits::deltas(&self, &runs[0]).await,
                Kind::Singles => emits::events(&self, &runs[0], 1).await,
                Kind::Batches => emits::events(&self, &runs[0], 5_000).await,
                Kind::Timelines => reads::again(&self, &format!("/api/runs/{}/timeline", runs[0]), 8).await,
                Kind::Pages => reads::again(&self, &format!("/api/runs/{}/events?limit=1000", runs[0]), 10).await,
                Kind::Feeds => reads::feeds(&self, 20).await,
                Kind::UnreadStreams => holds::unread(&self, &runs, 20).await,
                Kind::StalledTokens => {
                    tokio::join!(holds::unread(&self, &runs, runs.len()), emits::tokens(&self, &runs));
                }
                Kind::RunnerFrames => holds::runner_frames(&self, self.pick(20, 100)).await,
                Kind::SlowUploads => holds::slow_uploads(&self, &runs[0], 64).await,
                Kind::SlowBodies => holds::slow_bodies(&self, &runs[0], self.pick(500, 4_200)).await,
                Kind::Checkpoints => reads::again(&self, "/api/threads/flood/checkpoints/latest", 20).await,
                Kind::DrippingStreams => {
                    let streams = holds::dripping(&self, &runs, self.pick(100, 5_000));
                    tokio::join!(streams, emits::large(&self, &runs));
                }
                Kind::Deletions => emits::deletions(&self).await,
                Kind::Leavers => holds::leavers(&self, &runs[0]).await,
                Kind::Jobs => emits::jobs(&self, self.pick(100, 300)).await,
            }
        };
        let told = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        tokio::select! {
            () = flood => {}
            _ = told => {}
        }
        let answers = self.answers();
        // What is left open is closed, as by a client that leaves.
        for run_id in &runs {
            let _ = self.client()?.cancel(run_id, None).await;
        }
        writeln!(std::io::stdout(), "{answers}")?;
        Ok(())
    }

    pub(super) fn pick(&self, small: usize, full: usize) -> usize {
        if self.small { small } else { full }
    }

    pub(super) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(&format!("http://{}", self.address), Some(self.token.clone()))?)
    }

    /// Records the result of a request.
    pub(super) fn note(&self, answer: impl Into<String>) {
        *lock(&self.answers).entry(answer.into()).or_default() += 1;
    }

    fn answers(&self) -> String {
        let answers = std::mem::take(&mut *lock(&self.answers));
        let lines: Vec<String> = answers.iter().map(|(answer, count)| format!("{answer} × {count}")).collect();
        if lines.is_empty() { "nothing".to_owned() } else { lines.join(", ") }
    }

    /// Emits in one request; a rejection is recorded and followed by a short pause.
    pub(super) async fn emit(&self, client: &Client, run_id: &str, events: &[Value]) {
        match client.emit(run_id, events).await {
            Ok(_) => self.note("200"),
            Err(error) => {
                self.note(error.status.map_or_else(|| "cut".to_owned(), |status| status.to_string()));
                sleep(PAUSE).await;
            }
        }
    }

    /// The head of a request, with additional lines.
    pub(super) fn head(&self, request: &str, lines: &str) -> String {
        let Self { address, token, .. } = self;
        format!("{request} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n{lines}\r\n")
    }

    /// A socket with a small receive buffer that has sent this.
    pub(super) async fn socket(&self, sent: &[u8]) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(16 * 1024)?;
        let mut stream = timeout(Duration::from_secs(10), socket.connect(self.address)).await??;
        stream.write_all(sent).await?;
        Ok(stream)
    }
}
