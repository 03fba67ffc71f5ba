//! Reading a long run from its first event, and what an idle subscriber costs.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    http::{Lines, end_of_head, stream},
    machine::resident_kib,
    server::Server,
};

/// How a long run is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Sse,
    Ndjson,
}

/// One replay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replay {
    pub(crate) first_byte: Duration,
    pub(crate) whole: Duration,
    pub(crate) bytes: usize,
}

/// Reads a run of `events` events to its end, counting them.
pub(crate) async fn replay(server: &Server, run_id: &str, events: u64, format: Format) -> anyhow::Result<Replay> {
    let (path, accept) = match format {
        Format::Sse => (format!("/api/stream/runs/{run_id}"), "text/event-stream"),
        Format::Ndjson => (format!("/api/runs/{run_id}/events"), "application/x-ndjson"),
    };
    let began = Instant::now();
    let mut socket = stream(server.address, &path, accept).await?;
    let mut lines = Lines::default();
    let (mut buffer, mut first, mut read) = (Vec::with_capacity(256 * 1024), None, 0);
    let (mut count, mut over) = (0, false);
    while !over {
        buffer.clear();
        ensure!(socket.read_buf(&mut buffer).await? > 0, "the replay broke off after {count} events");
        read += buffer.len();
        let body = if first.is_none() { end_of_head(&buffer).unwrap_or(0) } else { 0 };
        // The first byte that counts is one of an event; the head and `retry:` come without any work.
        if first.is_none() && buffer[body..].windows(8).any(|word| word == b"\"run_id\"") {
            first = Some(began.elapsed());
        }
        lines.feed(&buffer, |line| match format {
            Format::Sse => {
                count += u64::from(line.starts_with(b"id: "));
                over |= line == b"event: stream.caught_up";
            }
            Format::Ndjson => count += u64::from(line.starts_with(b"{\"run_id\"")),
        });
        over |= format == Format::Ndjson && count >= events;
    }
    ensure!(count == events, "a replay brought {count} of {events} events");
    Ok(Replay { first_byte: first.unwrap_or_default(), whole: began.elapsed(), bytes: read })
}

/// Subscribers that are live and hear nothing.
pub(crate) struct Idle {
    sockets: Vec<TcpStream>,
    /// Resident memory of the server before the first one, KiB.
    before: f64,
    pid: u32,
}

impl Idle {
    pub(crate) fn none(pid: u32) -> Self {
        Self { sockets: Vec::new(), before: resident_kib(pid), pid }
    }

    /// Opens more until there are `count`, and tells what each costs, KiB.
    pub(crate) async fn grow(&mut self, server: &Server, run_id: &str, count: usize) -> anyhow::Result<f64> {
        let path = format!("/api/stream/runs/{run_id}?tail=0");
        while self.sockets.len() < count {
            let mut socket = stream(server.address, &path, "text/event-stream").await?;
            timeout(Duration::from_secs(30), until_live(&mut socket)).await??;
            self.sockets.push(socket);
        }
        // Connection set-up leaves work behind; a moment later it is done.
        sleep(Duration::from_millis(500)).await;
        Ok((resident_kib(self.pid) - self.before) / count as f64)
    }
}

async fn until_live(socket: &mut TcpStream) -> anyhow::Result<()> {
    let (mut lines, mut buffer, mut live) = (Lines::default(), Vec::with_capacity(4 * 1024), false);
    while !live {
        buffer.clear();
        ensure!(socket.read_buf(&mut buffer).await? > 0, "an idle stream was closed");
        lines.feed(&buffer, |line| live |= line == b"event: stream.caught_up");
    }
    Ok(())
}
