//! The simulated writer: what is committed, and what of it is published.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use chrono::DateTime;
use serde_json::{Value, json};

use super::{LANES, RUNS, log::Log};
use crate::{
    domain::{
        event::{EventKind, EventType, NewEvent, Recorded},
        id::{Seq, SpanId},
        json::Json,
        splice::LogPosition,
    },
    timeline::publish::{Gate, Publication},
};

/// What waits to be published, in order.
enum Waiting {
    Durable(LogPosition, Recorded),
    Token(Recorded, SpanId, String),
}

pub(super) struct Writer {
    log: Arc<Log>,
    gate: Gate,
    waiting: VecDeque<(u8, Waiting)>,
    positions: [i64; LANES],
    seqs: [i64; RUNS],
    ended: HashSet<usize>,
    /// The open message of a run.
    open: HashMap<usize, SpanId>,
    messages: usize,
}

impl Writer {
    /// Creates the first run, so that its followers find it.
    pub(super) fn new(log: Arc<Log>, gate: Gate) -> Self {
        let mut writer = Self {
            log,
            gate,
            waiting: VecDeque::new(),
            positions: [0; LANES],
            seqs: [0; RUNS],
            ended: HashSet::new(),
            open: HashMap::new(),
            messages: 0,
        };
        writer.begin(0);
        writer
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn lines(&mut self, run: usize, count: u8) {
        self.begin(run);
        (0..count).for_each(|_| self.commit(run, "log.info", &json!({}), None));
    }

    pub(super) fn token(&mut self, run: usize) {
        self.begin(run);
        if !self.is_open(run) {
            return;
        }
        let messages = &mut self.messages;
        let span = self.open.entry(run).or_insert_with(|| {
            *messages += 1;
            SpanId::trusted(&format!("m{messages}"))
        });
        let token = format!("é{} ", self.log.text(span).len());
        self.log.add_token(span, &token);
        let event = NewEvent::new(EventKind::MessageDelta, Json::of(&json!({ "text": token }))).span(span.clone());
        let event = Recorded::stamp(&self.log.runs[run], event, None, DateTime::UNIX_EPOCH);
        self.waiting.push_back((lane_of(run), Waiting::Token(event, span.clone(), token)));
    }

    pub(super) fn complete(&mut self, run: usize) {
        if let Some(span) = self.open.remove(&run) {
            self.commit(run, "message.completed", &json!({ "text": self.log.text(&span) }), Some(span));
        }
    }

    /// Ends a run, every other time with a message that is still open.
    pub(super) fn end(&mut self, run: usize) {
        if self.messages.is_multiple_of(2) {
            self.complete(run);
        }
        self.commit(run, "run.completed", &json!({}), None);
        self.open.remove(&run);
        self.ended.insert(run);
    }

    pub(super) async fn publish(&mut self, count: u8) {
        for (lane, batch, up_to) in self.take(count) {
            let of_run = |waiting| match waiting {
                Waiting::Durable(place, event) => (self.log.run(&event), Publication::Durable(place, event)),
                Waiting::Token(event, span, text) => (self.log.run(&event), Publication::Delta(event, span, text)),
            };
            let turn = self.gate.turn(lane).await;
            self.gate.publish(&turn, lane, up_to, batch.into_iter().map(of_run));
        }
    }

    pub(super) async fn skip(&mut self, count: u8) {
        for (lane, _, up_to) in self.take(count) {
            let turn = self.gate.turn(lane).await;
            self.gate.skip(&turn, lane, up_to);
        }
    }

    fn is_open(&self, run: usize) -> bool {
        self.seqs[run] > 0 && !self.ended.contains(&run)
    }

    /// Begins a run, unless it or its parent has ended.
    fn begin(&mut self, run: usize) {
        if self.seqs[run] == 0 && !(run == 1 && self.ended.contains(&0)) && !self.ended.contains(&run) {
            self.add(run, "run.created", &json!({}), None);
        }
    }

    fn commit(&mut self, run: usize, event_type: &str, payload: &Value, span_id: Option<SpanId>) {
        if self.is_open(run) {
            self.add(run, event_type, payload, span_id);
        }
    }

    fn add(&mut self, run: usize, event_type: &str, payload: &Value, span_id: Option<SpanId>) {
        let lane = lane_of(run);
        let position = &mut self.positions[usize::from(lane)];
        (*position, self.seqs[run]) = (*position + 1, self.seqs[run] + 1);
        let place = LogPosition { seq: Seq::new(self.seqs[run]).unwrap(), lane, position: *position };
        let event = NewEvent { span_id, ..NewEvent::new(EventType::trusted(event_type), Json::of(payload)) };
        let event = Recorded::stamp(&self.log.runs[run], event, Some(place.seq), DateTime::UNIX_EPOCH);
        self.log.commit(place, event.clone());
        self.waiting.push_back((lane, Waiting::Durable(place, event)));
    }

    /// The next waiting publications by lane, with the position they reach.
    fn take(&mut self, count: u8) -> Vec<(u8, Vec<Waiting>, i64)> {
        let count = usize::from(count).min(self.waiting.len());
        let mut lanes: Vec<_> =
            (0..).zip(0..LANES).map(|(lane, _)| (lane, Vec::new(), self.gate.published(lane))).collect();
        for (lane, waiting) in self.waiting.drain(..count) {
            let (_, batch, up_to) = &mut lanes[usize::from(lane)];
            if let Waiting::Durable(place, _) = &waiting {
                *up_to = place.position;
            }
            batch.push(waiting);
        }
        lanes.retain(|(_, batch, _)| !batch.is_empty());
        lanes
    }
}

/// The run outside the tree has its own lane.
fn lane_of(run: usize) -> u8 {
    u8::from(run == 2)
}
