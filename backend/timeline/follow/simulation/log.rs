//! A simulated log whose pages take a given number of polls, and sometimes fail.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};

use futures::{FutureExt as _, future::BoxFuture};

use crate::{
    bus::Frame,
    domain::{
        context::RunContext,
        cursor::FeedCursor,
        event::Recorded,
        history::Histories,
        id::{RunId, Seq, SpanId},
        principal::OwnerId,
        run::Status,
        splice::{LogPosition, ReadPosition},
    },
    store::{self, feed},
    timeline::{
        follow::Scope,
        pages::{Page, Source},
    },
};

/// How many polls a page waits before and after it is read, and whether the read fails. A page has at most one row more
/// than the first number.
pub(super) type Chance = (u8, u8, bool);

/// The committed events, and the chances of the reads to come.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) runs: Vec<Arc<RunContext>>,
    events: Mutex<Vec<(LogPosition, Recorded)>>,
    /// The text emitted so far of each message.
    texts: Mutex<HashMap<SpanId, String>>,
    chances: Mutex<VecDeque<Chance>>,
}

impl Log {
    pub(super) fn new(runs: Vec<Arc<RunContext>>, chances: &[Chance]) -> Self {
        let chances = Mutex::new(chances.iter().copied().collect());
        Self { runs, events: Mutex::default(), texts: Mutex::default(), chances }
    }

    pub(super) fn commit(&self, place: LogPosition, event: Recorded) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push((place, event));
    }

    pub(super) fn add_token(&self, span: &SpanId, token: &str) {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).entry(span.clone()).or_default().push_str(token);
    }

    /// The text emitted so far of a message.
    pub(super) fn text(&self, span: &SpanId) -> String {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).get(span).cloned().unwrap_or_default()
    }

    pub(super) fn events(&self) -> Vec<(LogPosition, Recorded)> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on no read fails.
    pub(super) fn heal(&self) {
        let mut chances = self.chances.lock().unwrap_or_else(PoisonError::into_inner);
        chances.iter_mut().for_each(|(.., fails)| *fails = false);
    }

    fn chance(&self) -> Chance {
        let mut chances = self.chances.lock().unwrap_or_else(PoisonError::into_inner);
        chances.rotate_left(1);
        chances[0]
    }

    /// The last event of a run, if it has ended.
    pub(super) fn end_of(&self, run: RunId) -> Option<Seq> {
        let events = self.events();
        let end = events.iter().find(|(_, event)| event.run_id == run && is_terminal(event));
        end.map(|(place, _)| place.seq)
    }

    pub(super) fn run(&self, event: &Recorded) -> Arc<RunContext> {
        Arc::clone(self.runs.iter().find(|run| run.run_id == event.run_id).unwrap())
    }

    /// Whether a reader with this scope is to get the run.
    pub(super) fn is_in(&self, scope: &Scope, run: RunId) -> bool {
        match scope {
            Scope::Run(own) => own.run_id == run,
            Scope::Feed(feed::Scope::Tree(root)) => {
                self.runs.iter().any(|known| known.run_id == run && known.root_run_id == *root)
            }
            Scope::Feed(_) => true,
        }
    }
}

impl Source for Log {
    fn page<'a>(
        &'a self,
        _owner: &'a OwnerId,
        scope: &'a Scope,
        track: &'a ReadPosition,
        _limit: i64,
        histories: &'a Histories,
    ) -> BoxFuture<'a, Result<Option<Page>, store::Error>> {
        async move {
            let (before, after, fails) = self.chance();
            polls(before).await;
            if fails {
                return Err(store::Error::timeout());
            }
            let all = self.events();
            let rows = usize::from(before) + 1;
            let (events, tail, floor, is_complete) = match track {
                ReadPosition::Run(after) => {
                    let wanted =
                        all.iter().filter(|(place, event)| self.is_in(scope, event.run_id) && place.seq > *after);
                    let events: Vec<_> = wanted.take(rows).collect();
                    let is_complete = events.len() < rows;
                    (events, None, cursor_of(all.iter().filter(|(place, _)| place.lane == 0)), is_complete)
                }
                // A part of the log, of which the reader gets its own events: sometimes none.
                ReadPosition::Feed(after) => {
                    let mut new = all.iter().filter(|(place, _)| place.position > after.at(place.lane));
                    let part: Vec<_> = new.by_ref().take(rows).collect();
                    let mut tail = after.clone();
                    for (place, _) in &part {
                        tail.advance(place.lane, place.position);
                    }
                    let is_complete = new.next().is_none();
                    let events = part.into_iter().filter(|(_, event)| self.is_in(scope, event.run_id)).collect();
                    (events, Some(tail.clone()), tail, is_complete)
                }
            };
            let frame = |(place, event): &(LogPosition, Recorded)| {
                (*place, Arc::new(Frame::new(self.run(event), event, Some(*place), histories.current())))
            };
            let events = events.into_iter().map(frame).collect();
            polls(after).await;
            Ok(Some(Page::new(events, tail, floor, is_complete)))
        }
        .boxed()
    }

    fn tree<'a>(&'a self, _owner: &'a OwnerId, root: RunId) -> BoxFuture<'a, Result<Vec<(RunId, bool)>, store::Error>> {
        async move {
            let (before, after, fails) = self.chance();
            polls(before).await;
            if fails {
                return Err(store::Error::timeout());
            }
            let mut tree = HashMap::new();
            for (_, event) in self.events() {
                if self.is_in(&Scope::Feed(feed::Scope::Tree(root)), event.run_id) {
                    *tree.entry(event.run_id).or_insert(false) |= is_terminal(&event);
                }
            }
            polls(after).await;
            Ok(tree.into_iter().collect())
        }
        .boxed()
    }

    fn ask<'a>(&'a self, _owner: &'a OwnerId, _run: Option<RunId>) -> BoxFuture<'a, ()> {
        polls(self.chance().1).boxed()
    }
}

fn cursor_of<'a>(events: impl Iterator<Item = &'a (LogPosition, Recorded)>) -> FeedCursor {
    let mut cursor = FeedCursor::start();
    events.for_each(|(place, _)| cursor.advance(place.lane, place.position));
    cursor
}

/// Stays pending for this many polls.
async fn polls(mut left: u8) {
    std::future::poll_fn(|task| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

pub(super) fn is_terminal(event: &Recorded) -> bool {
    Status::after(&event.event_type).is_some_and(Status::is_terminal)
}
