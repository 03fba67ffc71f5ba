//! Emits over HTTP: closed loops for the rate, a paced one for the time to the acknowledgement.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::time::{Instant as Moment, sleep_until};

use crate::{http::Connection, server::Server, stats::percentile};

/// Bytes of a payload, as in the measurements of other servers.
pub(crate) const PAYLOAD_BYTES: usize = 300;

/// What a connection sends, again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    /// Events of one request.
    pub(crate) batch: usize,
    /// Whether each event has an `event_id`.
    pub(crate) keyed: bool,
}

pub(crate) fn payload() -> String {
    format!("{{\"text\":\"{}\"}}", "x".repeat(PAYLOAD_BYTES - 11))
}

fn body(load: Load, request: u64) -> String {
    let payload = payload();
    let events = (0..load.batch).map(|index| {
        let key = if load.keyed { format!(",\"event_id\":\"{request}-{index}\"") } else { String::new() };
        format!("{{\"type\":\"custom.load\"{key},\"payload\":{payload}}}")
    });
    events.collect::<Vec<_>>().join("\n")
}

/// Acknowledged events per second; every one of them is counted again in the log.
pub(crate) async fn rate(server: &Server, load: Load, duration: Duration) -> anyhow::Result<f64> {
    let mut runs = Vec::new();
    for _ in 0..load.connections {
        runs.push(server.create_run().await?);
    }
    let began = Instant::now();
    let until = began + duration;
    let mut loops = Vec::new();
    for run_id in runs.clone() {
        loops.push(tokio::spawn(closed_loop(server.address, run_id, load, until)));
    }
    let (mut acknowledged, mut sent) = (0, Vec::new());
    for each in loops {
        let count = each.await??;
        acknowledged += count;
        sent.push(count);
    }
    let elapsed = began.elapsed();
    for (run_id, sent) in runs.iter().zip(sent) {
        // A run begins with two events of its own.
        let stored = server.last_seq(run_id).await? - 2;
        anyhow::ensure!(stored == sent, "{sent} events were acknowledged and {stored} are in the log");
    }
    Ok(acknowledged as f64 / elapsed.as_secs_f64())
}

async fn closed_loop(address: SocketAddr, run_id: String, load: Load, until: Instant) -> anyhow::Result<u64> {
    let mut connection = Connection::open(address).await?;
    let path = format!("/api/runs/{run_id}/events");
    let mut requests = 0;
    // The same bytes every time, unless they must differ.
    let mut bytes = body(load, 0);
    while Instant::now() < until {
        connection.post(&path, "application/x-ndjson", &bytes).await?;
        requests += 1;
        if load.keyed {
            bytes = body(load, requests);
        }
    }
    Ok(requests * load.batch as u64)
}

/// Fills a run with so many events.
pub(crate) async fn fill(server: &Server, events: usize) -> anyhow::Result<String> {
    let run_id = server.create_run().await?;
    let mut connection = Connection::open(server.address).await?;
    let path = format!("/api/runs/{run_id}/events");
    let mut left = events;
    while left > 0 {
        let batch = left.min(1_000);
        let bytes = body(Load { connections: 1, batch, keyed: false }, 0);
        connection.post(&path, "application/x-ndjson", &bytes).await?;
        left -= batch;
    }
    Ok(run_id)
}

/// Half and 99 of 100 acknowledgements at a fixed rate, one at a time.
pub(crate) async fn latency(
    server: &Server,
    per_second: u32,
    duration: Duration,
) -> anyhow::Result<(Duration, Duration)> {
    let run_id = server.create_run().await?;
    let mut connection = Connection::open(server.address).await?;
    let path = format!("/api/runs/{run_id}/events");
    let bytes = body(Load { connections: 1, batch: 1, keyed: false }, 0);
    let (began, step) = (Moment::now(), Duration::from_secs(1) / per_second);
    let (mut due, mut waits) = (began, Vec::new());
    while began.elapsed() < duration {
        sleep_until(due).await;
        // The timer of the runtime is coarse; an emit that starts late because of it is not the server's doing.
        let start = Moment::now();
        connection.post(&path, "application/json", &bytes).await?;
        waits.push(start.elapsed());
        due = (due + step).max(Moment::now());
    }
    waits.sort_unstable();
    Ok((percentile(&waits, 500), percentile(&waits, 990)))
}
