//! Readers that are cut on purpose: they follow a stream, drop the connection every few hundred milliseconds and go on
//! from the id of the last frame they got, as a browser on a bad network does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    compare::{Line, Table, Tally, judge_reader},
    job::Told,
};
use crate::{
    client::{Client, Notice},
    domain::id::RunId,
};

/// Shortest and longest life of a connection, milliseconds. Each reader has a rhythm of its own between them.
const LIFE_MS: std::ops::Range<u64> = 120..620;

/// What one reader got so far.
#[derive(Default)]
struct Seen {
    lines: Vec<Line>,
    cuts: u64,
    /// Connections that broke without this program's doing.
    breaks: u64,
    /// Frames of a seq that came a second time within one connection; the client passes them over, we count them.
    repeats: u64,
    /// Why the reader ended before its stream did.
    error: Option<String>,
}

struct Reader {
    /// The run it follows, or the whole tree below it.
    run_id: RunId,
    tree: bool,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// All readers of one tree of runs: one for the tree, one for each run in it.
pub(super) struct Readers {
    client: Client,
    all: Vec<Reader>,
    stop: CancellationToken,
}

/// What came of all readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) tally: Tally,
    pub(super) readers: u64,
    pub(super) cuts: u64,
    pub(super) breaks: u64,
    pub(super) lines: u64,
}

impl Readers {
    /// Readers of a tree that has only its root yet.
    pub(super) fn new(client: Client, root: RunId) -> Self {
        let mut readers = Self { client, all: Vec::new(), stop: CancellationToken::new() };
        readers.follow(root, true);
        readers.follow(root, false);
        readers
    }

    /// A worker that was spawned gets a reader of its own.
    pub(super) fn saw(&mut self, event: &Told) {
        if event.kind == "worker.spawned"
            && let Some(worker) = event.worker()
        {
            self.follow(worker, false);
        }
    }

    /// The runs that are followed, each once.
    pub(super) fn runs(&self) -> Vec<RunId> {
        self.all.iter().filter(|reader| !reader.tree).map(|reader| reader.run_id).collect()
    }

    /// Whether every reader has as many events as the table.
    pub(super) fn have_all(&self, table: &Table) -> bool {
        self.all.iter().all(|reader| {
            let seen = lock(&reader.seen);
            let distinct: BTreeSet<(RunId, i64)> = seen.lines.iter().map(|line| (line.run_id, line.seq)).collect();
            let stored: usize = reader.scope(table).iter().filter_map(|run_id| table.get(run_id)).map(Vec::len).sum();
            distinct.len() >= stored
        })
    }

    /// Ends all readers and judges them.
    pub(super) async fn finish(self, table: &Table) -> Result<Reading, String> {
        self.stop.cancel();
        let mut reading = Reading { readers: self.all.len() as u64, ..Reading::default() };
        for reader in self.all {
            let scope = reader.scope(table);
            reader.task.await.map_err(|error| format!("a reader stopped: {error}"))?;
            let seen = lock(&reader.seen);
            if let Some(error) = &seen.error {
                return Err(format!("the reader of {} stopped: {error}", reader.run_id));
            }
            reading.tally += judge_reader(table, &scope, &seen.lines);
            reading.tally.duplicated += seen.repeats;
            reading.cuts += seen.cuts;
            reading.breaks += seen.breaks;
            reading.lines += seen.lines.len() as u64;
        }
        Ok(reading)
    }

    fn follow(&mut self, run_id: RunId, tree: bool) {
        let path = format!("/api/stream/runs/{run_id}{}", if tree { "?tree=true" } else { "" });
        let seen = Arc::new(Mutex::new(Seen::default()));
        let rhythm = self.all.len() as u64;
        #[expect(clippy::disallowed_methods, reason = "kept, and awaited at the end")]
        let task = tokio::spawn(read(self.client.clone(), path, seen.clone(), self.stop.clone(), rhythm));
        self.all.push(Reader { run_id, tree, seen, task });
    }
}

impl Reader {
    /// The runs whose events this reader should see.
    fn scope(&self, table: &Table) -> Vec<RunId> {
        if self.tree { table.keys().copied().collect() } else { vec![self.run_id] }
    }
}

/// Follows until the stream ends by itself or all reading is stopped.
async fn read(client: Client, path: String, seen: Arc<Mutex<Seen>>, stop: CancellationToken, rhythm: u64) {
    // The reader keeps its own cursor: it must not profit from what the client knows of frames it never gave out.
    let mut cursor: Option<String> = None;
    for turn in 0u64.. {
        let mut follow = client.follow(&path, cursor.clone());
        let width = LIFE_MS.end - LIFE_MS.start;
        let life = LIFE_MS.start + (rhythm * 137 + turn * 211) % width;
        let cut = sleep_until(Instant::now() + Duration::from_millis(life));
        tokio::pin!(cut);
        let ended = loop {
            let notice = tokio::select! {
                biased;
                () = stop.cancelled() => break true,
                () = &mut cut => break false,
                notice = follow.next() => notice,
            };
            match notice {
                None => break true,
                Some(Ok(Notice::Frame(frame))) => {
                    lock(&seen).lines.extend(Line::read(&frame.data));
                    cursor = frame.id.or(cursor);
                }
                Some(Ok(Notice::Connected)) => {}
                Some(Ok(Notice::Lost { .. })) => lock(&seen).breaks += 1,
                Some(Err(error)) => {
                    lock(&seen).error = Some(error.to_string());
                    break true;
                }
            }
        };
        let mut seen = lock(&seen);
        seen.repeats += follow.repeats();
        if ended {
            return;
        }
        seen.cuts += 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Groups lines by their run.
pub(super) fn table_of(lines: impl IntoIterator<Item = Line>) -> Table {
    let mut table: Table = BTreeMap::new();
    for line in lines {
        table.entry(line.run_id).or_default().push(line);
    }
    table
}
