//! Floods that hold on to resources: streams that are not read, bodies and frames that are never finished.

use std::{io, sync::Arc};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Duration, sleep},
};

use super::attack::{Attacker, CONNECTIONS};

/// The interval between bytes: shorter than any silence that is not allowed.
const DRIP: Duration = Duration::from_secs(4);

/// Keeps this many sockets open, and opens another for one that is cut.
async fn keep<F>(attacker: &Attacker, count: usize, hold: impl Fn(Attacker, usize) -> F + Clone + Send + Sync + 'static)
where
    F: Future<Output = io::Result<()>> + Send,
{
    let tasks = (0..count).map(|number| {
        let (attacker, hold) = (attacker.clone(), hold.clone());
        tokio::spawn(async move {
            // Not all at once, which would be a flood of connections.
            sleep(Duration::from_micros(500) * u32::try_from(number).unwrap_or(u32::MAX)).await;
            loop {
                let ended = hold(attacker.clone(), number).await;
                attacker.note(if ended.is_ok() { "ended" } else { "cut" });
                sleep(Duration::from_millis(200)).await;
            }
        })
    });
    futures::future::join_all(tasks.collect::<Vec<_>>()).await;
}

/// Sends a byte from time to time until the other side has had enough, and records what it answered.
async fn drip(attacker: &Attacker, mut stream: TcpStream, piece: &[u8]) -> io::Result<()> {
    loop {
        sleep(DRIP).await;
        let mut answer = [0; 12];
        if let Ok(read) = stream.try_read(&mut answer) {
            attacker.note(String::from_utf8_lossy(&answer[..read]).chars().skip(9).collect::<String>());
            return Ok(());
        }
        stream.write_all(piece).await?;
    }
}

pub(super) async fn unread(attacker: &Attacker, runs: &[String], count: usize) {
    let runs = runs.to_vec();
    keep(attacker, count, move |attacker, number| {
        let request = format!("GET /api/stream/runs/{}", runs[number % runs.len()]);
        async move {
            let stream = attacker.socket(attacker.head(&request, "").as_bytes()).await?;
            attacker.note("opened");
            // The other side will abandon it at some point; until then nothing is read.
            loop {
                sleep(DRIP / 4).await;
                if is_dead(&stream) {
                    return Ok(());
                }
            }
        }
    })
    .await;
}

/// Streams of which a little is read from time to time.
pub(super) async fn dripping(attacker: &Attacker, runs: &[String], count: usize) {
    let runs = runs.to_vec();
    keep(attacker, count, move |attacker, number| {
        let request = format!("GET /api/stream/runs/{}?tail=0", runs[number % runs.len()]);
        async move {
            let mut stream = attacker.socket(attacker.head(&request, "").as_bytes()).await?;
            attacker.note("opened");
            let mut piece = [0; 256];
            loop {
                sleep(DRIP).await;
                if stream.read(&mut piece).await? == 0 {
                    return Ok(());
                }
            }
        }
    })
    .await;
}

/// Batches of almost the largest body, whose senders leave before they are stored.
pub(super) async fn leavers(attacker: &Attacker, run_id: &str) {
    let fill = "x".repeat(1_400);
    let events: Vec<_> =
        (0..5_000).map(|n| json!({ "type": "custom.flood", "payload": { "n": n, "fill": fill } })).collect();
    let body: Arc<str> = serde_json::Value::from(events).to_string().into();
    let request = format!("POST /api/runs/{run_id}/events");
    keep(attacker, CONNECTIONS, move |attacker, _| {
        let lines = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        let (head, body) = (attacker.head(&request, &lines), Arc::clone(&body));
        async move {
            let mut stream = attacker.socket(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            stream.shutdown().await
        }
    })
    .await;
}

/// Whether the other side has reset the connection.
fn is_dead(stream: &TcpStream) -> bool {
    stream.take_error().is_ok_and(|error| error.is_some())
}

pub(super) async fn slow_uploads(attacker: &Attacker, run_id: &str, count: usize) {
    let request = format!("POST /api/runs/{run_id}/artifacts?name=slow");
    keep(attacker, count, move |attacker, _| {
        let head = attacker.head(&request, "content-type: text/plain\r\ntransfer-encoding: chunked\r\n");
        async move {
            let stream = attacker.socket(format!("{head}1\r\nx\r\n").as_bytes()).await?;
            attacker.note("opened");
            drip(&attacker, stream, b"1\r\nx\r\n").await
        }
    })
    .await;
}

pub(super) async fn slow_bodies(attacker: &Attacker, run_id: &str, count: usize) {
    let request = format!("POST /api/runs/{run_id}/events");
    keep(attacker, count, move |attacker, _| {
        let head = attacker.head(&request, "content-type: application/json\r\ncontent-length: 60000\r\n");
        async move {
            let stream = attacker.socket(format!("{head}[").as_bytes()).await?;
            attacker.note("opened");
            drip(&attacker, stream, b" ").await
        }
    })
    .await;
}

/// Runners that begin a message of 8 MiB and never end it.
pub(super) async fn runner_frames(attacker: &Attacker, count: usize) {
    const LENGTH: u64 = 8 * 1024 * 1024;
    keep(attacker, count, |attacker, _| async move {
        let lines = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: runreel.runner.v1\r\n";
        let mut stream = attacker.socket(attacker.head("GET /api/runners/connect", lines).as_bytes()).await?;
        stream.readable().await?;
        attacker.note("opened");
        // A text frame, masked with zeros.
        let mut frame = vec![0x81, 0xff];
        frame.extend(LENGTH.to_be_bytes());
        frame.extend([0; 4]);
        stream.write_all(&frame).await?;
        let piece = vec![b' '; 64 * 1024];
        for _ in 1..LENGTH / 65_536 {
            stream.write_all(&piece).await?;
        }
        loop {
            sleep(DRIP / 4).await;
            stream.write_all(b" ").await?;
        }
    })
    .await;
}
