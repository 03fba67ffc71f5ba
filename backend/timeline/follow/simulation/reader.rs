//! A reader that is cut off and resumes, with checks of everything it receives.

use std::{
    collections::{HashMap, HashSet},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{LANES, log::Log};
use crate::{
    bus::Frame,
    domain::{
        cursor::FeedCursor,
        event::EventKind,
        id::{RunId, Seq, SpanId},
        run::Status,
        splice::{LogPosition, ReadPosition},
    },
    quota::Quota,
    store::feed,
    timeline::{
        follow::{Follower, Parts, Phase, Scope, StreamItem, StreamOptions},
        pages::Source,
        publish::Gate,
    },
};

/// A call of [`Follower::next`] that has not returned yet.
type Call = Pin<Box<dyn Future<Output = Option<Vec<StreamItem>>>>>;

/// How often the cases occurred that a reader has to survive.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) snapshots: usize,
    pub(super) tokens: usize,
    pub(super) cuts: usize,
    /// Connections that went back to the log after they were live.
    pub(super) returns: usize,
}

pub(super) struct Reader {
    log: Arc<Log>,
    gate: Gate,
    scope: Scope,
    /// `None` when the stream is over.
    follower: Option<Arc<Mutex<Follower>>>,
    call: Option<Call>,
    /// What it has received, over all its connections.
    seen: HashMap<RunId, Seq>,
    cursor: FeedCursor,
    ended: HashSet<RunId>,
    completed: HashSet<SpanId>,
    /// What this connection has received.
    texts: HashMap<SpanId, String>,
    is_caught_up: bool,
    has_end: bool,
    /// Whether events were skipped: texts may begin again.
    has_skips: bool,
    pub(super) tally: Tally,
}

impl Reader {
    pub(super) fn new(log: Arc<Log>, gate: Gate, scope: Scope) -> Self {
        let cursor = FeedCursor::of(vec![0; LANES]);
        let follower = Arc::new(Mutex::new(follower(&log, &gate, &scope, track(&scope, &HashMap::new(), &cursor))));
        Self {
            log,
            gate,
            scope,
            follower: Some(follower),
            call: None,
            seen: HashMap::new(),
            cursor,
            ended: HashSet::new(),
            completed: HashSet::new(),
            texts: HashMap::new(),
            is_caught_up: false,
            has_end: false,
            has_skips: false,
            tally: Tally::default(),
        }
    }

    /// Drops a pending call; the next one continues.
    pub(super) fn drop_call(&mut self) {
        self.call = None;
    }

    pub(super) fn note_skip(&mut self) {
        self.has_skips = true;
    }

    /// Drops the connection, and begins another after the last event received.
    pub(super) fn reconnect(&mut self) {
        if self.follower.is_none() {
            return;
        }
        self.tally.cuts += 1;
        (self.call, self.texts, self.is_caught_up) = (None, HashMap::new(), false);
        let mut next = follower(&self.log, &self.gate, &self.scope, track(&self.scope, &self.seen, &self.cursor));
        // As `Timeline::resume_run` and `resume_tree` do when the run has ended.
        let root = self.log.runs[0].run_id;
        let is_tree = matches!(self.scope, Scope::Feed(feed::Scope::Tree(_)));
        let is_run = matches!(self.scope, Scope::Run(_));
        if let Some(seq) = self.log.end_of(root).filter(|_| is_tree || is_run && self.ended.contains(&root)) {
            next.root_ended(Status::Completed, seq);
        }
        self.follower = Some(Arc::new(Mutex::new(next)));
    }

    /// Whether it has received everything, once everything has ended.
    pub(super) fn is_done(&self) -> bool {
        let is_endless = matches!(self.scope, Scope::Feed(feed::Scope::Everything));
        let has_last = |place: &LogPosition| self.cursor.at(place.lane) >= place.position;
        self.follower.is_none()
            || is_endless && self.is_caught_up && self.log.events().iter().all(|(place, _)| has_last(place))
    }

    /// Checks that every committed event of its runs has arrived.
    pub(super) fn has_all(&self) {
        let last: HashMap<_, _> = self.log.events().iter().map(|(place, event)| (event.run_id, place.seq)).collect();
        for (run, seq) in last.iter().filter(|(run, _)| self.log.is_in(&self.scope, **run)) {
            assert_eq!(self.seen.get(run), Some(seq), "of {run}");
        }
    }

    /// Polls the connection once, and checks the items it returns.
    pub(super) async fn read(&mut self) {
        let Some(follower) = self.follower.clone() else { return };
        let reading = Arc::clone(&follower);
        let call = self.call.get_or_insert_with(|| Box::pin(async move { reading.lock().await.next().await }));
        let Poll::Ready(items) = futures::poll!(call) else { return };
        self.call = None;
        let Some(items) = items else {
            assert!(self.has_end, "a stream says that it ends");
            self.follower = None;
            return;
        };
        assert!(!items.is_empty(), "no items are no news");
        let is_back = self.is_caught_up && follower.lock().await.todo == Phase::Query;
        self.tally.returns += usize::from(is_back);
        for item in items {
            self.get(item);
        }
    }

    fn get(&mut self, item: StreamItem) {
        assert!(!self.has_end, "nothing follows the end: {item:?}");
        match item {
            StreamItem::Frame(frame) if frame.place.is_some() => self.get_event(&frame),
            StreamItem::Frame(frame) => self.get_token(&frame),
            StreamItem::Snapshot(text) => {
                let so_far: String = text.pieces().collect();
                assert_eq!(so_far.chars().count(), text.chars);
                self.tally.snapshots += 1;
                self.see(text.context.run_id, text.span_id, so_far);
            }
            StreamItem::CaughtUp { last_seq, .. } => {
                assert!(!std::mem::replace(&mut self.is_caught_up, true), "it is said once");
                if let (Scope::Run(run), Some(last_seq)) = (&self.scope, last_seq) {
                    assert_eq!(self.seen[&run.run_id], last_seq);
                }
            }
            StreamItem::End { status, last_seq } => {
                assert!(self.is_caught_up, "the end comes after everything else");
                assert_eq!((self.seen[&self.log.runs[0].run_id], Status::Completed), (last_seq, status));
                self.has_all();
                self.has_end = true;
            }
            other => panic!("nothing caused {other:?}"),
        }
    }

    fn get_event(&mut self, frame: &Frame) {
        let (run, place) = (frame.context.run_id, frame.place.unwrap());
        assert!(self.log.is_in(&self.scope, run), "only what was asked for");
        let before = self.seen.insert(run, place.seq).unwrap_or(Seq::ZERO);
        assert_eq!(place.seq, before.next(), "each event once, and in order");
        assert!(place.position > self.cursor.at(place.lane), "and in the order of the log");
        self.cursor.advance(place.lane, place.position);
        if frame.terminal.is_some() {
            self.ended.insert(run);
        }
        if frame.event_type.is(EventKind::MessageCompleted) {
            let span = frame.span_id.clone().unwrap();
            if let Some(seen) = self.texts.remove(&span) {
                assert!(text_of(frame).contains(&seen), "{} was shown as {seen:?}", text_of(frame));
            }
            self.completed.insert(span);
        }
    }

    fn get_token(&mut self, frame: &Frame) {
        let payload: serde_json::Value = serde_json::from_str(frame.payload().as_str()).unwrap();
        let (span, offset) = (frame.span_id.clone().unwrap(), payload["offset"].as_u64().unwrap());
        let mut text = self.texts.remove(&span).filter(|_| offset > 0 || !self.has_skips).unwrap_or_default();
        assert_eq!(text.chars().count() as u64, offset, "no token is missing, and none comes twice");
        text.push_str(&text_of(frame));
        self.tally.tokens += 1;
        self.see(frame.context.run_id, span, text);
    }

    /// Checks that a text so far is part of an open message: part, because it begins again after skipped events.
    fn see(&mut self, run: RunId, span: SpanId, text: String) {
        assert!(self.is_caught_up && self.log.is_in(&self.scope, run), "texts are of what is live");
        assert!(!self.completed.contains(&span) && !self.ended.contains(&run), "{span} is over and is shown as open");
        assert!(self.log.text(&span).contains(&text), "{span} is shown as {text:?}");
        self.texts.insert(span, text);
    }
}

fn track(scope: &Scope, seen: &HashMap<RunId, Seq>, cursor: &FeedCursor) -> ReadPosition {
    match scope {
        Scope::Run(run) => ReadPosition::Run(seen.get(&run.run_id).copied().unwrap_or(Seq::ZERO)),
        Scope::Feed(_) => ReadPosition::Feed(cursor.clone()),
    }
}

/// A follower as the timeline makes it.
fn follower(log: &Arc<Log>, gate: &Gate, scope: &Scope, track: ReadPosition) -> Follower {
    let places = Quota::new(4, 4);
    let parts = Parts {
        source: Arc::clone(log) as Arc<dyn Source>,
        gate: gate.clone(),
        places: (places.clone(), places),
        draining: CancellationToken::new(),
    };
    let options = StreamOptions { tokens: true, ..StreamOptions::default() };
    Follower::new(parts, log.runs[0].owner_id.clone(), scope.clone(), track, gate.histories(), options)
}

fn text_of(frame: &Frame) -> String {
    let payload: serde_json::Value = serde_json::from_str(frame.payload().as_str()).unwrap();
    payload["text"].as_str().unwrap().to_owned()
}
