//! Readers: they follow a stream, are cut at random, and reconnect with `Last-Event-ID`, mostly the last one they saw,
//! sometimes an older one, occasionally none. Everything every connection delivered is kept for the judge.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde::Deserialize;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    judge::{Connection, Delivery, Run, Tally, print_of},
    live::ages_of,
    wire::{self, Frame, Frames},
};

/// Pause after a connection that could not be opened.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a connection lives before it is cut, milliseconds.
const LIFE_MS: std::ops::Range<u64> = 60..2_500;
/// A connection of a reader that is not cut.
const LIFE_LONG: Duration = Duration::from_mins(10);
/// How far back a reader goes that has forgotten its position, frames.
const BACK_MAX: usize = 400;

/// What a reader follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Run(Run),
    /// The first run and all its descendants.
    Tree,
    Everything,
}

/// How a reader behaves.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) target: Target,
    pub(crate) address: SocketAddr,
    pub(crate) seed: u64,
    /// Whether it is cut at random.
    pub(crate) cut: bool,
}

/// What a reader got.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: Vec<Connection>,
    /// Per run the last seq that counts.
    pub(crate) heads: BTreeMap<Run, u64>,
    pub(crate) cuts: u64,
    /// Connections that ended without being cut by us and without `stream.end`.
    pub(crate) breaks: u64,
    pub(crate) deltas: u64,
    /// How old tokens were that are the time at which they were sent.
    pub(crate) ages: Vec<Duration>,
    /// `stream.draining` was received.
    pub(crate) drained: u64,
    /// What it is doing, for progress messages.
    pub(crate) state: String,
    /// The stream reported its end.
    pub(crate) ended: bool,
    /// What a stream must not do, in words.
    pub(crate) complaints: Vec<String>,
}

impl Seen {
    pub(crate) fn deliveries(&self) -> u64 {
        self.connections.iter().map(|connection| connection.deliveries.len() as u64).sum()
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally { malformed: self.complaints.len() as u64, ..Tally::default() }
    }
}

/// A running reader.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) manner: Manner,
    pub(crate) seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The runs of a scenario by id.
pub(crate) type Names = Arc<HashMap<String, Run>>;

impl Reader {
    /// Starts reading. After `calm` is cancelled the reader is no longer cut.
    pub(crate) fn start(manner: Manner, names: Names, root: &str, calm: CancellationToken) -> Self {
        let path = match manner.target {
            Target::Run(run) => {
                let name = names.iter().find(|(_, index)| **index == run).map_or("", |(name, _)| name);
                format!("/api/stream/runs/{name}")
            }
            Target::Tree => format!("/api/stream/runs/{root}?tree=true"),
            Target::Everything => "/api/stream/runs".to_owned(),
        };
        let seen = Arc::new(Mutex::new(Seen::default()));
        let session = Session {
            path,
            names,
            calm,
            rng: StdRng::seed_from_u64(manner.seed),
            manner: manner.clone(),
            seen: Arc::clone(&seen),
            log: Vec::new(),
            began: Instant::now(),
        };
        Self { manner, seen, task: tokio::spawn(session.run()) }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A frame with an id, so that the reader can return to it.
struct Entry {
    id: String,
    run: Run,
    seq: u64,
}

struct Session {
    path: String,
    manner: Manner,
    names: Names,
    calm: CancellationToken,
    rng: StdRng,
    seen: Arc<Mutex<Seen>>,
    /// What counts, in order: going back removes the later ones.
    log: Vec<Entry>,
    began: Instant,
}

#[derive(Deserialize)]
struct Envelope {
    run_id: String,
    seq: Option<u64>,
    #[serde(rename = "type")]
    event_type: Option<String>,
    span_id: Option<String>,
    offset: Option<u64>,
    payload: Option<serde_json::Value>,
}

impl Session {
    async fn run(mut self) {
        loop {
            self.forget();
            let cursor = self.log.last().map(|entry| entry.id.clone());
            let headers: Vec<String> = cursor.map(|id| format!("last-event-id: {id}")).into_iter().collect();
            self.state(format_args!("connects with {headers:?}"));
            match wire::get(self.manner.address, &self.path, &headers).await {
                Ok(response) if response.status == 200 => {
                    let after = lock(&self.seen).heads.clone();
                    lock(&self.seen).connections.push(Connection { after, deliveries: Vec::new() });
                    if self.read(response).await {
                        return;
                    }
                }
                Ok(response) if response.status == 204 => {
                    lock(&self.seen).ended = true;
                    return;
                }
                Ok(response) if matches!(response.status, 429 | 503) => sleep(PAUSE).await,
                Ok(response) => {
                    let status = response.status;
                    let body = response.text().await.unwrap_or_default();
                    self.complain(format!("{} with {headers:?} answered {status}: {body}", self.path));
                    return;
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// A reader may lose some of what it had: it goes back in its log.
    fn forget(&mut self) {
        if !self.manner.cut || self.calm.is_cancelled() {
            return;
        }
        let back = match self.rng.random_range(0..100) {
            0..70 => 0,
            70..97 => self.rng.random_range(1..BACK_MAX),
            _ => self.log.len(),
        };
        let mut seen = lock(&self.seen);
        for entry in self.log.drain(self.log.len().saturating_sub(back)..).rev() {
            seen.heads.insert(entry.run, entry.seq - 1);
        }
    }

    /// Reads one connection; `true` if the stream has ended for good.
    async fn read(&mut self, mut response: wire::Response) -> bool {
        let random = Duration::from_millis(self.rng.random_range(LIFE_MS));
        let cut = self.manner.cut && !self.calm.is_cancelled();
        let until = Instant::now() + if cut { random } else { LIFE_LONG };
        let (mut frames, mut spans, mut draining) = (Frames::default(), HashMap::new(), false);
        loop {
            let bytes = match timeout_at(until, response.next()).await {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => {
                    // A proper end needs a reason that was sent before.
                    if !draining {
                        self.complain(format!("{} ended without a word", self.path));
                    }
                    return false;
                }
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                    self.complain(format!("{}: {error}", self.path));
                    return false;
                }
                Ok(Err(_)) => {
                    lock(&self.seen).breaks += 1;
                    return false;
                }
                Err(_) => {
                    lock(&self.seen).cuts += 1;
                    return false;
                }
            };
            match frames.feed(&bytes) {
                Ok(frames) => {
                    for frame in frames {
                        if frame.event == "stream.end" {
                            lock(&self.seen).ended = true;
                            return true;
                        }
                        draining |= frame.event == "stream.draining";
                        self.take(&frame, &mut spans);
                    }
                }
                Err(error) => {
                    self.complain(format!("{}: {error}", self.path));
                    return false;
                }
            }
        }
    }

    fn state(&self, state: std::fmt::Arguments<'_>) {
        lock(&self.seen).state = state.to_string();
    }

    fn take(&mut self, frame: &Frame, spans: &mut HashMap<(Run, String), u64>) {
        self.state(format_args!("got {} {:?} at {:?}", frame.event, frame.id, self.began.elapsed()));
        match frame.event.as_str() {
            "stream.draining" => lock(&self.seen).drained += 1,
            "stream.gap" => self.complain(format!("a gap was told although nothing was removed: {}", frame.data)),
            control if control.starts_with("stream.") => {}
            _ => match self.event(frame, spans) {
                Ok(()) => {}
                Err(why) => self.complain(format!("{why}: {frame:?}")),
            },
        }
    }

    fn event(&mut self, frame: &Frame, spans: &mut HashMap<(Run, String), u64>) -> Result<(), &'static str> {
        let envelope: Envelope = serde_json::from_str(&frame.data).map_err(|_| "a frame holds no envelope")?;
        let run = *self.names.get(&envelope.run_id).ok_or("a frame of a run that is not ours")?;
        let span = (run, envelope.span_id.clone().unwrap_or_default());
        if frame.event == "message.snapshot" {
            spans.insert(span, envelope.offset.ok_or("a snapshot without its offset")?);
            return Ok(());
        }
        if envelope.event_type.as_deref() != Some(frame.event.as_str()) {
            return Err("the event field is not the type");
        }
        let Some(seq) = envelope.seq else {
            let text = follow_delta(frame, &envelope, spans.entry(span).or_default())?;
            let mut seen = lock(&self.seen);
            seen.deltas += 1;
            seen.ages.extend(ages_of(text));
            return Ok(());
        };
        let id = frame.id.clone().ok_or("a durable event without an id")?;
        if matches!(self.manner.target, Target::Run(_)) && id != seq.to_string() {
            return Err("the id of a run's frame is not its seq");
        }
        spans.remove(&span);
        let mut seen = lock(&self.seen);
        let delivery = Delivery { run, seq, print: print_of(&frame.data) };
        if let Some(connection) = seen.connections.last_mut() {
            connection.deliveries.push(delivery);
        }
        seen.heads.insert(run, seq);
        self.log.push(Entry { id, run, seq });
        Ok(())
    }

    fn complain(&self, why: String) {
        lock(&self.seen).complaints.push(why);
    }
}

/// A delta must begin where the text so far ends, or from 0: a server that had to skip a long piece of the log no
/// longer knows any text.
/// Returns the text that it adds, nothing if it begins anew.
fn follow_delta<'a>(frame: &Frame, envelope: &'a Envelope, end: &mut u64) -> Result<&'a str, &'static str> {
    if frame.id.is_some() {
        return Err("a delta with an id");
    }
    let payload = envelope.payload.as_ref().ok_or("a delta without a payload")?;
    let offset = payload["offset"].as_u64().ok_or("a delta without its offset")?;
    let text = payload["text"].as_str().ok_or("a delta without a text")?;
    let fits = offset == *end || offset == 0;
    *end = offset + text.chars().count() as u64;
    if fits {
        Ok(if offset == 0 { "" } else { text })
    } else {
        Err("a delta does not begin where the text so far ends")
    }
}
