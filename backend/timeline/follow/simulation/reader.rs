//! A reader that is cut off and comes back, and what it must have by then.

use std::{
    collections::{HashMap, HashSet},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use tokio_util::sync::CancellationToken;

use super::log::Log;
use crate::{
    bus::{Frame, Topic},
    domain::{
        cursor::FeedCursor,
        id::{RunId, Seq, SpanId},
        splice::{ReadPosition, Splice},
    },
    quota::Quota,
    store::feed,
    timeline::{
        follow::{FIRST_PAGE_ROWS, Follower, Phase, Scope, StreamItem, StreamOptions},
        holding::Holding,
        pages::Source,
        publish::Gate,
    },
};

type Work = dyn Future<Output = (Box<Follower>, Option<Vec<StreamItem>>)>;

/// A connection, between two calls or in the middle of one.
enum Reading {
    Idle(Box<Follower>),
    Busy(Pin<Box<Work>>),
    Over,
}

/// How often what a reader is to survive happened.
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
    reading: Reading,
    /// What it has, over all its connections.
    seen: HashMap<RunId, Seq>,
    cursor: i64,
    completed: HashSet<SpanId>,
    /// What this connection has.
    texts: HashMap<SpanId, String>,
    is_caught_up: bool,
    is_over: bool,
    pub(super) tally: Tally,
}

impl Reader {
    pub(super) fn new(log: Arc<Log>, gate: Gate, scope: Scope) -> Self {
        let mut reader = Self {
            log,
            gate,
            scope,
            reading: Reading::Over,
            seen: HashMap::new(),
            cursor: 0,
            completed: HashSet::new(),
            texts: HashMap::new(),
            is_caught_up: false,
            is_over: false,
            tally: Tally::default(),
        };
        reader.connect();
        reader
    }

    /// Drops the connection, whatever it was doing, and begins another after the last event that arrived.
    pub(super) fn cut(&mut self) {
        if !self.is_over {
            self.tally.cuts += 1;
            self.connect();
        }
    }

    fn connect(&mut self) {
        let owner = self.log.runs[0].owner_id.clone();
        let (topic, track) = match &self.scope {
            Scope::Run(run) => {
                let seen = self.seen.get(&run.run_id).copied().unwrap_or(Seq::ZERO);
                (Topic::Run(run.run_id), ReadPosition::Run(seen))
            }
            Scope::Feed(_) => (Topic::Everything, ReadPosition::Feed(FeedCursor::of(vec![self.cursor]))),
        };
        let places = Quota::new(4, 4);
        let follower = Follower {
            source: Arc::clone(&self.log) as Arc<dyn Source>,
            gate: self.gate.clone(),
            places: (places.clone(), places),
            draining: CancellationToken::new(),
            subscription: self.gate.bus().subscribe(owner.clone(), topic),
            owner,
            scope: self.scope.clone(),
            options: StreamOptions { tokens: true, ..StreamOptions::default() },
            splice: Splice::new(track),
            todo: Phase::Query,
            histories: self.gate.histories(),
            floor: FeedCursor::start(),
            rows: FIRST_PAGE_ROWS,
            members: HashSet::new(),
            live: HashSet::new(),
            ended: None,
            ready: Vec::new(),
            held: Holding::default(),
            has_asked: false,
        };
        (self.texts, self.is_caught_up) = (HashMap::new(), false);
        self.reading = Reading::Idle(Box::new(follower));
    }

    /// Whether it has got all it will ever get, once everything has ended.
    pub(super) fn is_done(&self) -> bool {
        let is_endless = matches!(self.scope, Scope::Feed(feed::Scope::Everything));
        self.is_over || is_endless && self.log.events().last().is_some_and(|(place, _)| place.position == self.cursor)
    }

    /// Everything of its runs that was committed has arrived.
    pub(super) fn has_all(&self) {
        let last: HashMap<_, _> = self.log.events().iter().map(|(place, event)| (event.run_id, place.seq)).collect();
        for (run, seq) in last.iter().filter(|(run, _)| self.log.is_in(&self.scope, **run)) {
            assert_eq!(self.seen.get(run), Some(seq), "of {run}");
        }
    }

    /// Polls the connection once, and takes what it has.
    pub(super) async fn read(&mut self) {
        let mut work = match std::mem::replace(&mut self.reading, Reading::Over) {
            Reading::Idle(mut follower) => Box::pin(async move {
                let items = follower.next().await;
                (follower, items)
            }),
            Reading::Busy(work) => work,
            Reading::Over => return,
        };
        match futures::poll!(&mut work) {
            Poll::Pending => self.reading = Reading::Busy(work),
            Poll::Ready((_, None)) => self.is_over = true,
            Poll::Ready((follower, Some(items))) => {
                assert!(!items.is_empty(), "no items are no news");
                self.tally.returns += usize::from(self.is_caught_up && follower.todo == Phase::Query);
                self.reading = Reading::Idle(follower);
                for item in items {
                    self.get(item);
                }
            }
        }
    }

    fn get(&mut self, item: StreamItem) {
        match item {
            StreamItem::Frame(frame) if frame.place.is_some() => self.get_event(&frame),
            StreamItem::Frame(frame) => self.get_token(&frame),
            StreamItem::Snapshot(text) => {
                let so_far: String = text.pieces().collect();
                assert_eq!(so_far.chars().count(), text.chars);
                self.tally.snapshots += 1;
                self.see(text.span_id, so_far);
            }
            StreamItem::CaughtUp { last_seq, .. } => {
                assert!(!std::mem::replace(&mut self.is_caught_up, true), "it is said once");
                if let (Scope::Run(run), Some(last_seq)) = (&self.scope, last_seq) {
                    assert_eq!(self.seen[&run.run_id], last_seq);
                }
            }
            StreamItem::End { last_seq, .. } => {
                assert_eq!(self.seen[&self.log.runs[0].run_id], last_seq);
                self.has_all();
            }
            other => panic!("nothing caused {other:?}"),
        }
    }

    fn get_event(&mut self, frame: &Frame) {
        let (run, place) = (frame.context.run_id, frame.place.unwrap());
        assert!(self.log.is_in(&self.scope, run), "only what was asked for");
        let before = self.seen.insert(run, place.seq).unwrap_or(Seq::ZERO);
        assert_eq!(place.seq, before.next(), "each event once, and in order");
        assert!(place.position > self.cursor, "and in the order of the log");
        self.cursor = place.position;
        if frame.event_type.as_str() == "message.completed" {
            let span = frame.span_id.clone().unwrap();
            if let Some(seen) = self.texts.remove(&span) {
                assert!(text_of(frame).contains(&seen), "{} was shown as {seen:?}", text_of(frame));
            }
            self.completed.insert(span);
        }
    }

    fn get_token(&mut self, frame: &Frame) {
        assert!(self.is_caught_up, "tokens are of what is live");
        let payload: serde_json::Value = serde_json::from_str(frame.payload().as_str()).unwrap();
        let (span, offset) = (frame.span_id.clone().unwrap(), payload["offset"].as_u64().unwrap());
        let mut text = if offset == 0 { String::new() } else { self.texts[&span].clone() };
        assert_eq!(text.chars().count() as u64, offset, "no token is missing, and none comes twice");
        text.push_str(&text_of(frame));
        self.tally.tokens += 1;
        self.see(span, text);
    }

    /// A text so far is of a message that is open, and a part of it: where events were skipped it begins anew.
    fn see(&mut self, span: SpanId, text: String) {
        assert!(!self.completed.contains(&span), "{span} is over and is shown as open");
        assert!(self.log.text(&span).contains(&text), "{span} is shown as {text:?}");
        self.texts.insert(span, text);
    }
}

fn text_of(frame: &Frame) -> String {
    let payload: serde_json::Value = serde_json::from_str(frame.payload().as_str()).unwrap();
    payload["text"].as_str().unwrap().to_owned()
}
