//! The scenarios that are not storms.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    judge::ACKNOWLEDGED_MIN,
    progress,
    reader::{Target, lock},
    stage::{END_MAX, Stage, Verdict, batches},
    table,
    writer::{Writer, event},
};

/// Longest wait for a condition that should hold soon.
const SOON: Duration = Duration::from_mins(1);

/// Two writers on one run, singles and batches mixed, each event sent once.
pub(crate) async fn two_writers(program: &Path, seed: u64, processes: usize, each: usize) -> anyhow::Result<Verdict> {
    let mut stage = Stage::open(program, processes, 1, seed, &[]).await?;
    for server in 0..processes {
        stage.add_reader(server, Target::Run(0), false);
        stage.add_reader(server, Target::Run(0), true);
    }
    let mut writers = Vec::new();
    for number in 0..2 {
        let (client, run_id, traffic) =
            (stage.client(number % processes)?, stage.run_ids[0].clone(), Arc::clone(&stage.traffic));
        let mut rng = StdRng::seed_from_u64(seed ^ number as u64);
        let events = (0..each).map(|n| event(&format!("w{number}"), n as u64, &mut rng)).collect();
        let sizes = std::iter::from_fn(move || Some(if rng.random_bool(0.5) { 1 } else { rng.random_range(2..100) }));
        writers.push(tokio::spawn(async move {
            for batch in batches(events, sizes) {
                traffic.attempt(0, &batch);
                match client.emit(&run_id, &batch).await {
                    Ok(ack) => traffic.answered(0, &batch, &ack),
                    Err(error) => traffic.complain(format!("an emit was refused: {error} ({:?})", error.status)),
                }
            }
        }));
    }
    let began = Instant::now();
    for writer in writers {
        writer.await?;
    }
    let elapsed = began.elapsed();
    let mut verdict = stage.judge().await?;
    let acknowledged = stage.traffic.acknowledged();
    let wanted = 2 * each as u64 + 1;
    verdict.require(acknowledged == wanted, || format!("{acknowledged} of {wanted} events were acknowledged"));
    verdict.fact(format!("{processes} processes, {:.0} events/s", acknowledged as f64 / elapsed.as_secs_f64()));
    stage.close(&mut verdict).await?;
    Ok(verdict)
}

/// The same `event_id` a hundred times at once, on one server and on two: one row, one seq in all answers.
pub(crate) async fn same_event_id(program: &Path, seed: u64) -> anyhow::Result<Verdict> {
    const TIMES: usize = 100;
    const ROUNDS: usize = 4;
    let mut stage = Stage::open(program, 2, 1, seed, &[]).await?;
    stage.add_reader(0, Target::Run(0), false);
    let mut verdict = Verdict::default();
    for round in 0..ROUNDS {
        let event_id = format!("once-{round}");
        let events = Arc::new([json!({ "type": "custom.once", "event_id": event_id, "payload": { "round": round } })]);
        stage.traffic.attempt(0, events.as_slice());
        let mut asked = Vec::new();
        for time in 0..TIMES {
            // Odd rounds use both servers.
            let (client, run_id) = (stage.client(time * (round % 2) % 2)?, stage.run_ids[0].clone());
            let (events, traffic) = (Arc::clone(&events), Arc::clone(&stage.traffic));
            asked.push(tokio::spawn(async move {
                let answer = client.emit(&run_id, events.as_slice()).await;
                if let Ok(ack) = &answer {
                    traffic.answered(0, events.as_slice(), ack);
                }
                answer
            }));
        }
        let (mut seqs, mut firsts) = (std::collections::BTreeSet::new(), 0);
        for answer in asked {
            match answer.await? {
                Ok(ack) => {
                    seqs.insert((ack.first_seq, ack.last_seq));
                    firsts += ack.events.iter().filter(|event| !event.duplicate).count();
                }
                Err(error) => verdict.violations.push(format!("one of the hundred got {error}")),
            }
        }
        verdict.require(seqs.len() == 1, || format!("the hundred were told {seqs:?}"));
        verdict.require(firsts == 1, || format!("{firsts} of the hundred were told to be the first"));
    }
    let judged = stage.judge().await?;
    verdict.tally += judged.tally;
    verdict.violations.extend(judged.violations);
    verdict.facts.extend(judged.facts);
    let rows = table::read(&stage.site, stage.servers[0].address, &stage.run_ids).await?;
    let once = rows[0].iter().filter(|row| row.event_id.as_deref().is_some_and(|id| id.starts_with("once-"))).count();
    verdict.require(once == ROUNDS, || format!("{once} rows for {ROUNDS} event_ids"));
    verdict.fact(format!("{ROUNDS} × {TIMES} emits, {once} rows"));
    stage.close(&mut verdict).await?;
    Ok(verdict)
}

/// SIGTERM under open streams and load.
pub(crate) async fn drain(program: &Path, seed: u64, streams: usize) -> anyhow::Result<Verdict> {
    let mut stage = Stage::open(program, 1, 2, seed, &[]).await?;
    for reader in 0..streams {
        stage.add_reader(0, if reader % 10 == 0 { Target::Everything } else { Target::Run(reader % 2) }, false);
    }
    let stop = CancellationToken::new();
    let writers: Vec<_> = (0..4).map(|number| start_writer(&stage, number, &stop)).collect::<anyhow::Result<_>>()?;
    let loaded = async {
        while stage.traffic.acknowledged() < ACKNOWLEDGED_MIN
            || stage.readers.iter().any(|reader| reader.seen().connections.is_empty())
        {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, loaded).await.context("the streams do not open")?;
    let (began, mut verdict) = (Instant::now(), Verdict::default());
    let status = stage.servers[0].terminate(END_MAX).await?;
    let took = began.elapsed();
    verdict.require(status.is_some_and(|status| status.success()), || format!("the server ended with {status:?}"));
    // What the server wrote last is in the readers' sockets; they see the end of their connection.
    let _ = timeout(Duration::from_secs(5), async {
        while stage.readers.iter().any(|reader| reader.seen().drained == 0) {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let told = stage.readers.iter().filter(|reader| reader.seen().drained == 1).count();
    verdict.require(told == streams, || format!("{told} of {streams} streams were told that the server drains"));
    stage.servers[0].spawn()?;
    stage.servers[0].ready().await?;
    stop.cancel();
    for writer in writers {
        writer.await?;
    }
    let judged = stage.judge().await?;
    verdict.tally += judged.tally;
    verdict.violations.extend(judged.violations);
    verdict.fact(format!("{told} of {streams} streams told, exit after {} ms", took.as_millis()));
    verdict.facts.extend(judged.facts);
    stage.close(&mut verdict).await?;
    Ok(verdict)
}

fn start_writer(stage: &Stage, number: usize, stop: &CancellationToken) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let run = number % stage.run_ids.len();
    let writer = Writer {
        client: stage.client(0)?,
        run,
        run_id: stage.run_ids[run].clone(),
        name: format!("w{number}"),
        seed: stage.seed ^ (number as u64 + 1) << 32,
        pause_ms_max: 10,
    };
    Ok(writer.start(Arc::clone(&stage.traffic), stop.clone()))
}

/// Readers that read nothing, beside normal ones.
pub(crate) async fn stalled_readers(
    program: &Path,
    seed: u64,
    stalled: usize,
    megabytes: usize,
) -> anyhow::Result<Verdict> {
    const EVENT_BYTES: usize = 4_000;
    let mut stage = Stage::open(program, 1, 1, seed, &[]).await?;
    let mut verdict = Verdict::default();
    let resident = resident_bytes(stage.servers[0].pid())?;
    let mut sockets = Vec::new();
    for _ in 0..stalled {
        sockets.push(stalled_stream(&stage).await?);
    }
    for _ in 0..stalled {
        stage.add_reader(0, Target::Run(0), false);
    }
    let client = stage.client(0)?;
    let mut lags = Vec::new();
    let (batch_events, began) = (50, Instant::now());
    let rounds = (megabytes * 1_000_000).div_ceil(EVENT_BYTES * batch_events);
    for round in 0..rounds {
        let events: Vec<_> = (0..batch_events)
            .map(|n| {
                let payload = json!({ "fill": "y".repeat(EVENT_BYTES - 300) });
                json!({ "type": "custom.fill", "event_id": format!("f-{round}-{n}"), "payload": payload })
            })
            .collect();
        stage.traffic.attempt(0, &events);
        let ack = client.emit(&stage.run_ids[0], &events).await.context("an emit beside stalled readers")?;
        stage.traffic.answered(0, &events, &ack);
        let (seq, acknowledged) = (ack.last_seq.unwrap_or_default().unsigned_abs(), Instant::now());
        let reached = async {
            while stage.readers.iter().any(|reader| reader.seen().heads.get(&0).is_none_or(|head| *head < seq)) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(Duration::from_secs(10), reached).await.is_err() {
            verdict.violations.push(format!("good readers were not at seq {seq} within 10 s"));
            break;
        }
        lags.push(acknowledged.elapsed());
    }
    lags.sort_unstable();
    let grown = resident_bytes(stage.servers[0].pid())?.saturating_sub(resident);
    let (mib, written) = (grown / (1 << 20), stage.traffic.acknowledged());
    // Rings, socket buffers and an allocator's slack; what was written is many times more per reader.
    verdict.require(mib < 128, || format!("the server grew by {mib} MiB beside {stalled} stalled readers"));
    progress(format_args!("{written} events beside {stalled} stalled readers in {:?}", began.elapsed()))?;
    let worst = lags.last().copied().unwrap_or_default();
    let median = crate::stage::percentile(&lags, 500);
    verdict.fact(format!(
        "{stalled} stalled, good ones {} ms behind the acknowledgement (median; worst {}), server grew by {mib} MiB",
        median.as_millis(),
        worst.as_millis()
    ));
    let last = lock(&stage.traffic.acks).len() as u64;
    let woken = futures::future::join_all(sockets.into_iter().map(|socket| read_on(socket, last))).await;
    let woken = woken.into_iter().filter(|well| *well).count();
    verdict.fact(format!("{woken} of {stalled} then read on without a gap or found themselves cut"));
    verdict.require(woken == stalled, || format!("only {woken} of {stalled} stalled readers read on"));
    let judged = stage.judge().await?;
    verdict.tally += judged.tally;
    verdict.violations.extend(judged.violations);
    verdict.facts.extend(judged.facts);
    stage.close(&mut verdict).await?;
    Ok(verdict)
}

/// A stream that is requested and not read, with a small receive buffer.
async fn stalled_stream(stage: &Stage) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(32 * 1024)?;
    let address = stage.servers[0].address;
    let mut stream = socket.connect(address).await?;
    let path = format!("/api/stream/runs/{}", stage.run_ids[0]);
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
    Ok(stream)
}

/// Whether a stalled reader that wakes up gets 1, 2, 3 … up to `last`, or as far as it gets before it is cut.
async fn read_on(stream: TcpStream, last: u64) -> bool {
    let read = async {
        let mut response = crate::wire::resume(stream).await?;
        let (mut frames, mut head) = (crate::wire::Frames::default(), 0);
        while head < last {
            let Ok(Some(bytes)) = response.next().await else { return Ok::<bool, std::io::Error>(head > 0) };
            for frame in frames.feed(&bytes)? {
                let Some(id) = frame.id.and_then(|id| id.parse::<u64>().ok()) else { continue };
                if id != head + 1 {
                    return Ok(false);
                }
                head = id;
            }
        }
        Ok(true)
    };
    matches!(timeout(SOON, read).await, Ok(Ok(true)))
}

fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().next().context("no figure")?.parse::<u64>()? * 1024)
}
