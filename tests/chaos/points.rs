//! kill -9 of the server at chosen points: of an emit, of a page, of an upload.
//!
//! A proxy between the server and Postgres holds the bytes at which a point is, and the server dies while it waits.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, time::Duration};

use anyhow::Context as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    proxy::{Fate, Proxy},
    site::READY_MAX,
    stage::{Stage, Verdict},
    storm::EVENTS,
    table, wire,
};

/// What only the rows of a page have: the index of the search reads payloads too, and no types.
const ROWS: &str = "custom.chaos";
/// Longest wait for a connection to get to a point, and for Postgres to execute what it got.
const HELD_MAX: Duration = Duration::from_secs(30);
/// Events that are committed while the page is held after which a reader is to go on live.
const MEANWHILE: u64 = 50;
/// How long after that page the server dies, microseconds: in the middle of the hand-off from replay to live.
const HAND_OFF_US: std::ops::Range<u64> = 0..3_000;
/// Bytes of an upload.
const UPLOAD_BYTES: usize = 2 * 1024 * 1024;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where the server is when it dies.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// The statement with the events has not been sent.
    BeforeInsert,
    /// It was executed, and not committed.
    BeforeCommit,
    /// It was committed, and the server does not know: nothing was published.
    BeforePublication,
    /// A reader's replay has half of a page.
    MidPage,
    /// A reader's last page has come, and events were published while it was read.
    HandOff,
}

const POINTS: [Point; 5] =
    [Point::BeforeInsert, Point::BeforeCommit, Point::BeforePublication, Point::MidPage, Point::HandOff];

/// Kills the server at the point whose turn it is, and starts it again.
pub(crate) async fn kill_at(stage: &mut Stage, number: usize, notes: &mut Verdict) -> anyhow::Result<()> {
    let point = POINTS[number % POINTS.len()];
    match point {
        Point::BeforeInsert => held(stage, Fate::HeldBefore).await?,
        Point::BeforeCommit => {
            held(stage, Fate::HeldOpen).await?;
            notes.require(is_open(stage).await?, || "no transaction was open that had written".to_owned());
        }
        Point::BeforePublication => held(stage, Fate::HeldAfter).await?,
        Point::MidPage | Point::HandOff => {
            // A new process has no pages in memory: the readers that come back make it read some.
            stage.servers[0].kill()?;
            // Answers to the one before may still be on their way.
            proxy(stage)?.drop_all();
            proxy(stage)?.trap(ROWS, Fate::HeldWithin);
            stage.servers[0].spawn()?;
            timeout(HELD_MAX, proxy(stage)?.held()).await.context("no page was read")?;
        }
    }
    if matches!(point, Point::HandOff) {
        let enough = stage.traffic.acknowledged() + MEANWHILE;
        let more = async {
            while stage.traffic.acknowledged() < enough {
                sleep(LOOK_EVERY).await;
            }
        };
        // Readers of other runs may need the same connections, so the page is let go in any case.
        let came = timeout(HELD_MAX, more).await.is_ok();
        notes.require(came, || "nothing was committed while a page was read".to_owned());
        proxy(stage)?.release();
        sleep(Duration::from_micros(StdRng::seed_from_u64(stage.seed ^ number as u64).random_range(HAND_OFF_US))).await;
    }
    again(stage).await
}

/// Whether Postgres gets to have executed a statement that writes, and waits for what ends it.
async fn is_open(stage: &Stage) -> anyhow::Result<bool> {
    const OPEN: &str = "select exists (select from pg_stat_activity
        where backend_xid is not null and state = 'active' and wait_event = 'ClientRead')";
    let mut postgres = table::connect(&stage.site).await?;
    let look = async {
        while !sqlx::query_scalar::<_, bool>(OPEN).fetch_one(&mut postgres).await? {
            sleep(LOOK_EVERY).await;
        }
        Ok(true)
    };
    timeout(HELD_MAX, look).await.unwrap_or(Ok(false))
}

fn proxy(stage: &Stage) -> anyhow::Result<&Proxy> {
    stage.proxy.as_ref().context("there is no proxy")
}

/// Waits until an emit is held.
async fn held(stage: &Stage, fate: Fate) -> anyhow::Result<()> {
    let proxy = proxy(stage)?;
    proxy.trap(EVENTS, fate);
    timeout(HELD_MAX, proxy.held()).await.context("no emit was held")
}

/// The server dies here, what it had sent and not finished with it, and another one starts.
async fn again(stage: &mut Stage) -> anyhow::Result<()> {
    stage.servers[0].kill()?;
    let proxy = proxy(stage)?;
    proxy.drop_all();
    proxy.release();
    stage.servers[0].spawn()?;
    stage.servers[0].ready().await
}

/// Kills the server in the middle of an upload, and between its bytes and its event, in turn: what is listed is whole,
/// and what was acknowledged is listed.
pub(crate) async fn uploads(program: &Path, seed: u64, kills: usize) -> anyhow::Result<Verdict> {
    let mut stage = Stage::behind_proxy(program, 1, seed).await?;
    let (mut rng, mut verdict, run_id) = (StdRng::seed_from_u64(seed), Verdict::default(), stage.run_ids[0].clone());
    let mut acknowledged = BTreeMap::new();
    let address = stage.servers[0].address;
    for number in 0..kills {
        let bytes: Vec<u8> = (0..UPLOAD_BYTES).map(|_| rng.random()).collect();
        let name = format!("held-{number}");
        let mut upload = begin(address, &run_id, &name, bytes.len()).await?;
        if number % 2 == 0 {
            upload.write_all(&bytes[..UPLOAD_BYTES / 2]).await?;
            upload.flush().await?;
            sleep(Duration::from_millis(rng.random_range(0..40))).await;
        } else {
            // Only the payload of its event says so.
            proxy(&stage)?.trap(&format!("\"name\":\"{name}\""), Fate::HeldBefore);
            upload.write_all(&bytes).await?;
            timeout(HELD_MAX, proxy(&stage)?.held()).await.context("the event of the artifact was not held")?;
        }
        again(&mut stage).await?;
        drop(upload);
        // Whatever became of it, the same again is stored once.
        let mut upload = begin(address, &run_id, &name, bytes.len()).await?;
        upload.write_all(&bytes).await?;
        let answer = wire::resume(upload).await?;
        verdict.require(answer.status == 201, || format!("an upload that was repeated got {}", answer.status));
        acknowledged.insert(name, hex::encode(Sha256::digest(&bytes)));
    }
    let text = wire::get(address, &format!("/api/runs/{run_id}/artifacts?limit=500"), &[]).await?.text().await?;
    let page: Value = serde_json::from_str(&text)?;
    let listed = page["artifacts"].as_array().context("no list of artifacts")?;
    for artifact in listed {
        let (name, url) = (artifact["name"].as_str().unwrap_or_default(), artifact["url"].as_str().unwrap_or_default());
        let sum = sum_of(address, url).await?;
        let told = artifact["sha256"].as_str().unwrap_or_default();
        verdict.require(sum == told, || format!("{name} is told as {told} and is {sum}"));
        verdict.require(acknowledged.remove(name).is_some_and(|sent| sent == sum), || format!("{name} is not as sent"));
    }
    verdict.require(acknowledged.is_empty(), || format!("acknowledged and not there: {:?}", acknowledged.keys()));
    verdict.fact(format!("{kills} kills, {} artifacts whole", listed.len()));
    stage.close(&mut verdict).await?;
    Ok(verdict)
}

/// Sends the head of an upload. The same `event_id` makes a repeat safe.
async fn begin(address: SocketAddr, run_id: &str, name: &str, length: usize) -> anyhow::Result<TcpStream> {
    let mut stream = timeout(READY_MAX, TcpStream::connect(address)).await??;
    let head = format!(
        "POST /api/runs/{run_id}/artifacts?name={name}&event_id={name} HTTP/1.1\r\nhost: {address}\r\n\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

async fn sum_of(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut body = wire::get(address, path, &[]).await?;
    let mut sum = Sha256::new();
    while let Some(bytes) = body.next().await? {
        sum.update(&bytes);
    }
    Ok(hex::encode(sum.finalize()))
}
