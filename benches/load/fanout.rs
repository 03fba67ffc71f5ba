//! Many subscribers of one run: how many deliveries a second, and how long from publishing to receiving.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{
    io::AsyncReadExt as _,
    task::JoinHandle,
    time::{Instant as Moment, sleep, sleep_until, timeout},
};

use crate::{
    http::{Connection, Lines, stream},
    server::Server,
    stats::percentile,
};

/// A payload ends with the nanosecond it was published at, in so many digits.
const STAMP_DIGITS: usize = 19;
const WAIT_MAX: Duration = Duration::from_mins(1);

/// How subscribers fare together.
#[derive(Debug, Default)]
struct Board {
    caught_up: AtomicU64,
    deliveries: AtomicU64,
}

/// Subscribers of a run, and the clock their latencies are told by.
#[derive(Debug)]
pub(crate) struct Audience {
    board: Arc<Board>,
    readers: Vec<JoinHandle<anyhow::Result<Vec<Duration>>>>,
    epoch: Instant,
    run_id: String,
    /// Events of the run so far.
    last_seq: u64,
}

impl Audience {
    /// Opens subscribers and waits until all of them are live.
    pub(crate) async fn open(server: &Server, subscribers: usize, messages: u64) -> anyhow::Result<Self> {
        let run_id = server.create_run().await?;
        let (board, epoch) = (Arc::new(Board::default()), Instant::now());
        let mut readers = Vec::with_capacity(subscribers);
        for _ in 0..subscribers {
            let path = format!("/api/stream/runs/{run_id}");
            let socket = stream(server.address, &path, "text/event-stream").await?;
            readers.push(tokio::spawn(read(socket, Arc::clone(&board), epoch, 2 + messages)));
        }
        let audience = Self { board, readers, epoch, run_id, last_seq: 2 };
        audience.wait_for(|board| board.caught_up.load(Ordering::Relaxed) >= subscribers as u64).await?;
        Ok(audience)
    }

    async fn wait_for(&self, reached: impl Fn(&Board) -> bool) -> anyhow::Result<()> {
        let wait = async {
            while !reached(&self.board) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(WAIT_MAX, wait).await.context("not every subscriber got everything in time")
    }

    /// Publishes in a closed loop, or at a rate; deliveries per second and the latencies, sorted.
    pub(crate) async fn publish(
        mut self,
        server: &Server,
        messages: u64,
        per_second: Option<u32>,
    ) -> anyhow::Result<(f64, Vec<Duration>)> {
        let mut connection = Connection::open(server.address).await?;
        let path = format!("/api/runs/{}/events", self.run_id);
        let (subscribers, began) = (self.readers.len() as u64, Moment::now());
        let mut due = began;
        for _ in 0..messages {
            if let Some(per_second) = per_second {
                sleep_until(due).await;
                due += Duration::from_secs(1) / per_second;
            }
            let stamp = ONE + u64::try_from(self.epoch.elapsed().as_nanos())?;
            let fill = "x".repeat(crate::emit::PAYLOAD_BYTES - 40);
            let body = format!("{{\"type\":\"custom.load\",\"payload\":{{\"text\":\"{fill}\",\"t\":{stamp:019}}}}}");
            connection.post(&path, "application/json", &body).await?;
            self.last_seq += 1;
        }
        let wanted = subscribers * messages;
        self.wait_for(|board| board.deliveries.load(Ordering::Relaxed) >= wanted).await?;
        let elapsed = began.elapsed();
        let mut waits = Vec::with_capacity(usize::try_from(wanted)?);
        for reader in self.readers {
            let own = reader.await??;
            anyhow::ensure!(own.len() as u64 == messages, "a subscriber got {} of {messages} events", own.len());
            waits.extend(own);
        }
        waits.sort_unstable();
        Ok((wanted as f64 / elapsed.as_secs_f64(), waits))
    }
}

/// Added to every stamp, so that it never begins with a zero, which JSON does not allow.
const ONE: u64 = 1_000_000_000_000_000_000;

/// Reads until seq `last`, each seq once and in order.
async fn read(
    mut socket: tokio::net::TcpStream,
    board: Arc<Board>,
    epoch: Instant,
    last: u64,
) -> anyhow::Result<Vec<Duration>> {
    let (mut lines, mut bytes) = (Lines::default(), Vec::with_capacity(16 * 1024));
    let (mut seq, mut waits, mut wrong) = (0, Vec::new(), 0);
    while seq < last {
        bytes.clear();
        anyhow::ensure!(socket.read_buf(&mut bytes).await? > 0, "a stream ended at seq {seq} of {last}");
        let now = epoch.elapsed();
        let mut new = 0;
        lines.feed(&bytes, |line| {
            if let Some(id) = line.strip_prefix(b"id: ") {
                let id = number(id);
                wrong += u64::from(id != seq + 1);
                seq = id;
            } else if line == b"event: stream.caught_up" {
                board.caught_up.fetch_add(1, Ordering::Relaxed);
            } else if line.starts_with(b"data: ") && line.ends_with(b"}}") && seq > 2 {
                let stamp = &line[..line.len() - 2];
                let stamp = number(&stamp[stamp.len().saturating_sub(STAMP_DIGITS)..]);
                let published = Duration::from_nanos(stamp.saturating_sub(ONE));
                waits.push(now.saturating_sub(published));
                new += 1;
            }
        });
        board.deliveries.fetch_add(new, Ordering::Relaxed);
    }
    anyhow::ensure!(wrong == 0, "{wrong} seqs were lost, repeated or out of order");
    Ok(waits)
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().filter(|digit| digit.is_ascii_digit()).fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
}

/// One measurement at full speed, in deliveries per second.
pub(crate) async fn full_speed(server: &Server, subscribers: usize, messages: u64) -> anyhow::Result<f64> {
    let audience = Audience::open(server, subscribers, messages).await?;
    Ok(audience.publish(server, messages, None).await?.0)
}

/// Half and 99 of 100 latencies at a fixed rate.
pub(crate) async fn paced(
    server: &Server,
    subscribers: usize,
    messages: u64,
    per_second: u32,
) -> anyhow::Result<(Duration, Duration)> {
    let audience = Audience::open(server, subscribers, messages).await?;
    let (_, waits) = audience.publish(server, messages, Some(per_second)).await?;
    Ok((percentile(&waits, 500), percentile(&waits, 990)))
}
