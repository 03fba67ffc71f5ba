//! Streams as read by a client that keeps ids unchanged: followed live, or requested once with an old cursor.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::Deserialize;
use serde_json::Value;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::judge::{After, Word};
use crate::{
    judge::Run,
    reader::lock,
    wire::{self, Frames},
};

/// Longest wait for what an old cursor delivers.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Longest wait until a live stream has everything that was acknowledged.
const TAIL_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// One of the streams of a scenario.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    pub(super) path: String,
    /// The runs it shows.
    pub(super) shows: Vec<Run>,
    /// The runs of the scenario by id.
    names: Arc<HashMap<String, Run>>,
}

impl Feed {
    /// Each run's stream, the tree of the first, and everything.
    pub(super) fn all(run_ids: &[String]) -> Vec<Self> {
        let names: Arc<HashMap<String, Run>> =
            Arc::new(run_ids.iter().cloned().enumerate().map(|(run, id)| (id, run)).collect());
        let feed = |path: String, shows| Self { path, shows, names: Arc::clone(&names) };
        let each = |(run, id): (Run, &String)| feed(format!("/api/stream/runs/{id}"), vec![run]);
        let mut feeds: Vec<Self> = run_ids.iter().enumerate().map(each).collect();
        feeds.push(feed(format!("/api/stream/runs/{}?tree=true", run_ids[0]), vec![0]));
        feeds.push(feed("/api/stream/runs".to_owned(), (0..run_ids.len()).collect()));
        feeds
    }

    /// The page of events after an id of a run's stream.
    pub(super) fn page(&self, id: &str) -> Option<String> {
        let run = self.path.strip_prefix("/api/stream").filter(|path| self.shows.len() == 1 && !path.contains('?'))?;
        Some(format!("/api{run}/events?limit=1&after={id}"))
    }

    /// Reads a stream from a cursor on and passes on every word of it, until `word` returns that it is enough.
    async fn read(
        &self,
        address: SocketAddr,
        id: Option<&str>,
        mut word: impl FnMut(Word) -> bool,
    ) -> io::Result<Option<After>> {
        let headers: Vec<String> = id.map(|id| format!("last-event-id: {id}")).into_iter().collect();
        let mut response = wire::get(address, &self.path, &headers).await?;
        if response.status != 200 {
            let status = response.status;
            let body: Value = serde_json::from_str(&response.text().await?).unwrap_or_default();
            return Ok(Some(After::Refused { status, code: body["code"].as_str().unwrap_or_default().to_owned() }));
        }
        let mut frames = Frames::default();
        while let Ok(Some(bytes)) = response.next().await {
            for frame in frames.feed(&bytes)? {
                let heard = if frame.event.starts_with("stream.") {
                    Word::Control(frame.event)
                } else if let Some(event) = self.event(frame.id, &frame.data) {
                    event
                } else {
                    continue;
                };
                if word(heard) {
                    return Ok(None);
                }
            }
        }
        word(Word::Closed);
        Ok(None)
    }

    fn event(&self, id: Option<String>, data: &str) -> Option<Word> {
        #[derive(Deserialize)]
        struct Envelope {
            run_id: String,
            seq: u64,
        }
        let Envelope { run_id, seq } = serde_json::from_str(data).ok()?;
        Some(Word::Event { run: *self.names.get(&run_id)?, seq, id: id? })
    }

    /// What a stream delivers for an old cursor, up to where it has caught up; and without one, everything there is.
    pub(super) async fn ask(&self, address: SocketAddr, id: Option<&str>) -> anyhow::Result<After> {
        let mut words = Vec::new();
        let read = self.read(address, id, |word| {
            let last = word.is_caught_up();
            words.push(word);
            last
        });
        match timeout(LOOK_MAX, read).await {
            Ok(refused) => Ok(refused?.unwrap_or(After::Said(words))),
            Err(_) => Ok(After::Said(words)),
        }
    }
}

/// A reader that follows a stream and is connected when the database is set back.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) feed: Feed,
    words: Arc<Mutex<Vec<(Instant, Word)>>>,
    task: JoinHandle<()>,
}

impl Follower {
    pub(super) fn start(address: SocketAddr, feed: &Feed) -> Self {
        let words = Arc::<Mutex<Vec<(Instant, Word)>>>::default();
        let (ours, feed) = (Arc::clone(&words), feed.clone());
        let reading = feed.clone();
        let task = tokio::spawn(async move {
            let heard = reading.read(address, None, |word| {
                lock(&ours).push((Instant::now(), word));
                false
            });
            if !matches!(heard.await, Ok(None)) {
                lock(&ours).push((Instant::now(), Word::Closed));
            }
        });
        Self { feed, words, task }
    }

    pub(super) fn words(&self) -> Vec<(Instant, Word)> {
        lock(&self.words).clone()
    }

    /// Waits until it has everything up to these seqs of its runs, and returns its position.
    pub(super) async fn at(&self, lasts: &[u64]) -> anyhow::Result<Mark> {
        let reached = async {
            loop {
                let mark = Mark::of(&self.words().into_iter().map(|(_, word)| word).collect::<Vec<_>>());
                if self.feed.shows.iter().all(|run| mark.heads.get(run).is_some_and(|head| *head >= lasts[*run])) {
                    return mark;
                }
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(TAIL_MAX, reached).await.map_err(|_| anyhow::anyhow!("{} does not get to {lasts:?}", self.feed.path))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A reader's position.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    /// The last id, unchanged.
    pub(super) id: String,
    /// The last seq of each run.
    pub(super) heads: BTreeMap<Run, u64>,
}

impl Mark {
    pub(super) fn of(words: &[Word]) -> Self {
        let mut mark = Self::default();
        for word in words {
            if let Word::Event { run, seq, id } = word {
                mark.heads.insert(*run, *seq);
                mark.id.clone_from(id);
            }
        }
        mark
    }
}
