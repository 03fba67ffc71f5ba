//! Sessions that are saved under the same names again and again, on a server that is killed while it writes them.
//!
//! Each name has its own writer, which counts: a file's content shows which save it is from. Two writers save threads,
//! whose checkpoints they change first; one sends files. The kill comes at any moment, and every other time while a
//! file is being written. With the server dead the folder is checked: each file must be what was acknowledged last, or
//! what was in progress then, byte for byte.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::DateTime;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use runreel::{
    client::{Client, Error},
    domain::transcript::SavedSession,
    wire::saved_sessions::SavedList,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    progress,
    site::{Home, Server, Site},
    stage::{END_MAX, Verdict, percentile},
};

const NAMES: [&str; 3] = ["kept", "kept-too", "sent"];
/// Messages of a session and characters of each: more than a MiB, so that writing a file takes a while.
const MESSAGES: usize = 250;
const CHARACTERS: usize = 6_000;
/// A kill comes at most this long after every writer has made progress.
const LATER_MS: std::ops::Range<u64> = 0..400;
/// And this long after a file was seen being written.
const WITHIN_US: std::ops::Range<u64> = 0..6_000;
/// Longest wait for something that must come.
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The state shared by the writers and the killer.
#[derive(Default)]
struct Shape {
    over: AtomicBool,
    /// The last acknowledged save of each name.
    acknowledged: [AtomicU64; 3],
}

pub(crate) async fn run(program: &Path, seed: u64, kills: usize) -> anyhow::Result<Verdict> {
    let site = Site::new()?;
    let mut server = Server::start(program, &site, Home::Embedded, 0, &["--poll-ms", "50"]).await?;
    let folder = site.data_dir().join("sessions");
    let (shape, client) = (Arc::new(Shape::default()), Client::new(&server.url(), None)?);
    let writers: Vec<_> =
        (0..NAMES.len()).map(|which| tokio::spawn(write(client.clone(), Arc::clone(&shape), which))).collect();
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut verdict, mut outages) = (Verdict::default(), Vec::new());
    let (mut left_behind, mut new_ones) = (0, 0);
    for number in 0..kills {
        gone_on(&shape).await?;
        sleep(Duration::from_millis(rng.random_range(LATER_MS))).await;
        if number % 2 == 0 {
            being_written(&folder).await?;
            sleep(Duration::from_micros(rng.random_range(WITHIN_US))).await;
        }
        server.kill()?;
        left_behind += usize::from(!unfinished(&folder)?.is_empty());
        for (which, name) in NAMES.iter().enumerate() {
            let acknowledged = shape.acknowledged[which].load(Ordering::SeqCst);
            match judge(name, fs::read(folder.join(format!("{name}.json"))), acknowledged) {
                Ok(found) => new_ones += usize::from(found > acknowledged),
                Err(wrong) => verdict.violations.push(format!("kill {number}: {wrong}")),
            }
        }
        let began = Instant::now();
        server.spawn()?;
        server.ready().await?;
        outages.push(began.elapsed());
        verdict.violations.extend(index_heals(&client, &folder).await?.map(|wrong| format!("kill {number}: {wrong}")));
        progress(format_args!("{} of {kills} kills", number + 1))?;
    }
    gone_on(&shape).await?;
    shape.over.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await??;
    }
    let left = unfinished(&folder)?;
    verdict.require(left.is_empty(), || format!("{left:?} were never removed"));
    plants(&folder, &shape, &mut verdict)?;
    let saves: u64 = shape.acknowledged.iter().map(|saves| saves.load(Ordering::SeqCst)).sum();
    outages.sort_unstable();
    verdict.require(kills < 20 || left_behind > 0, || "no kill came while a file was being written".to_owned());
    verdict.fact(format!("{kills} kills in {saves} saves of {} files", NAMES.len()));
    verdict.fact(format!("{left_behind} kills left an unfinished file beside the whole ones"));
    verdict.fact(format!("{new_ones} times a file was the new one before that was acknowledged"));
    verdict.fact(format!("ready again after {} ms (median)", percentile(&outages, 500).as_millis()));
    let status = server.terminate(END_MAX).await?;
    verdict.require(status.is_some_and(|status| status.success()), || format!("the server ended with {status:?}"));
    verdict.violations.extend(server.panics());
    Ok(verdict)
}

/// The messages of one save.
fn messages(save: u64) -> Value {
    let message =
        |n: usize| json!({"role": "user", "content": format!("save {save} message {n} {}", "x".repeat(CHARACTERS))});
    (0..MESSAGES).map(message).collect()
}

/// Which save a file is from; otherwise what is wrong with it.
fn judge(name: &str, file: io::Result<Vec<u8>>, acknowledged: u64) -> Result<u64, String> {
    let bytes = match file {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound && acknowledged == 0 => return Ok(0),
        Err(error) => return Err(format!("{name}: {error}, after save {acknowledged}")),
    };
    let parsed = name.parse().map_err(|rule| format!("{name}: {rule}"))?;
    let session = SavedSession::read(parsed, &bytes, DateTime::UNIX_EPOCH)
        .map_err(|unreadable| format!("{name}: torn, {} bytes: {unreadable}", bytes.len()))?;
    if session.to_text().as_bytes() != bytes {
        return Err(format!("{name}: {} bytes that nobody wrote so", bytes.len()));
    }
    let first = session.thread.messages.first().and_then(|message| message["content"].as_str()).unwrap_or_default();
    let save: u64 = first.split(' ').nth(1).and_then(|save| save.parse().ok()).unwrap_or_default();
    let said = |content: &Value| content.as_str().map(str::to_owned);
    let wanted = messages(save);
    let is_whole = session.thread.messages.len() == MESSAGES
        && session
            .thread
            .messages
            .iter()
            .zip(wanted.as_array().into_iter().flatten())
            .all(|(message, wanted)| said(&message["content"]) == said(&wanted["content"]));
    if !is_whole {
        return Err(format!("{name}: pieces of several saves, the first of {save}"));
    }
    if (acknowledged..=acknowledged + 1).contains(&save) {
        Ok(save)
    } else {
        Err(format!("{name}: save {save}, when {acknowledged} was acknowledged"))
    }
}

/// Files that a writer has not moved to their final names.
fn unfinished(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "tmp")).collect())
}

/// Waits until a session's file is being written.
async fn being_written(folder: &Path) -> anyhow::Result<()> {
    let folder = folder.to_owned();
    let looking = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let paths = NAMES.map(|name| folder.join(format!(".{name}.json.tmp")));
        while began.elapsed() < PATIENCE {
            if paths.iter().any(|path| path.exists()) {
                return Ok(());
            }
            std::thread::yield_now();
        }
        anyhow::bail!("nothing is written")
    });
    looking.await?
}

/// The server's list must show the existing files, and so must the index after it.
async fn index_heals(client: &Client, folder: &Path) -> anyhow::Result<Option<String>> {
    let page: SavedList = client.get(&["saved-sessions"], &[]).await?;
    let names = |rows: &Value| -> Vec<String> {
        rows.as_array().into_iter().flatten().filter_map(|row| row["name"].as_str().map(str::to_owned)).collect()
    };
    if !page.unreadable.is_empty() {
        return Ok(Some(format!("unreadable after the restart: {:?}", page.unreadable)));
    }
    let index = fs::read(folder.join("index.json")).ok();
    let index: Option<Value> = index.and_then(|index| serde_json::from_slice(&index).ok());
    let listed: Vec<String> = page.saved_sessions.into_iter().map(|saved| saved.name).collect();
    let indexed = index.map(|index| names(&index["sessions"]));
    // Before the first save there is neither.
    let is_healed = indexed.as_ref().is_some_and(|indexed| *indexed == listed) || listed.is_empty();
    Ok((!is_healed).then(|| format!("the list has {listed:?} and the index {indexed:?}")))
}

/// Waits until another save of every writer is acknowledged.
async fn gone_on(shape: &Shape) -> anyhow::Result<()> {
    let count = |saves: &AtomicU64| saves.load(Ordering::SeqCst);
    let before: Vec<u64> = shape.acknowledged.iter().map(count).collect();
    let going = async {
        while shape.acknowledged.iter().zip(&before).any(|(saves, before)| count(saves) == *before) {
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(PATIENCE, going).await.context("a writer stands still")
}

/// Saves under one name, the next content once the last one is acknowledged.
async fn write(client: Client, shape: Arc<Shape>, which: usize) -> anyhow::Result<()> {
    for save in 1.. {
        if shape.over.load(Ordering::SeqCst) {
            break;
        }
        timeout(PATIENCE, until_taken(&client, which, save)).await.context("a save was not taken")??;
        shape.acknowledged[which].store(save, Ordering::SeqCst);
    }
    Ok(())
}

async fn until_taken(client: &Client, which: usize, save: u64) -> Result<(), Error> {
    loop {
        match put(client, NAMES[which], save).await {
            Err(error) if error.kind.is_retryable() => sleep(LOOK_EVERY).await,
            done => return done,
        }
    }
}

/// One attempt: the same content however often it is made.
async fn put(client: &Client, name: &str, save: u64) -> Result<(), Error> {
    let messages = messages(save);
    if name == "sent" {
        let at = "2026-06-01T00:00:00.000000Z";
        let file = json!({"created_at": at, "updated_at": at, "thread": {"messages": messages}});
        return client.put::<Value>(&["saved-sessions", name], &file).await.map(drop);
    }
    let value = |value: &Value| json!({"t": "json", "b": STANDARD.encode(value.to_string())});
    let mut blob = value(&messages);
    blob["version"] = json!(save);
    let body = json!({"checkpoint": value(&json!({})), "versions": {"messages": save}, "blobs": {"messages": blob}});
    let id = format!("{save:010}");
    client.put::<Value>(&["threads", name, "checkpoints", &id], &body).await?;
    client.post::<Value>(&["saved-sessions"], &json!({"name": name, "thread_id": name})).await.map(drop)
}

/// Tests the judge: a writer that does not put whole files in place must be detected.
fn plants(folder: &Path, shape: &Shape, verdict: &mut Verdict) -> anyhow::Result<()> {
    let (name, acknowledged) = (NAMES[2], shape.acknowledged[2].load(Ordering::SeqCst));
    let whole = fs::read(folder.join(format!("{name}.json")))?;
    verdict.require(judge(name, Ok(whole.clone()), acknowledged).is_ok(), || "the last file is not well".to_owned());
    let newer = String::from_utf8(whole.clone())?
        .replace(&format!("save {acknowledged} "), &format!("save {} ", acknowledged + 1));
    let half = whole.len() / 2;
    let over = [&newer.as_bytes()[..half], &whole[half..]].concat();
    let planted: [(&str, io::Result<Vec<u8>>); 6] = [
        ("a file cut off", Ok(whole[..half].to_vec())),
        ("an empty file", Ok(Vec::new())),
        ("a new file half over the old one", Ok(over)),
        ("a file twice", Ok([whole.as_slice(), &whole].concat())),
        ("a hole of zeros", Ok([&whole[..half], &vec![0; 4096], &whole[half + 4096..]].concat())),
        ("no file", Err(io::ErrorKind::NotFound.into())),
    ];
    for (what, file) in planted {
        verdict.require(judge(name, file, acknowledged).is_err(), || format!("{what} was not seen"));
    }
    verdict
        .require(judge(name, Ok(whole), acknowledged + 1).is_err(), || "a save that was lost was not seen".to_owned());
    verdict.fact("7 kinds of planted damage seen");
    Ok(())
}
