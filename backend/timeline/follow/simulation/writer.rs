//! What is emitted, and what of it is published.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use chrono::DateTime;
use serde_json::{Value, json};

use super::{RUNS, log::Log};
use crate::{
    domain::{
        event::{NewEvent, Recorded},
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
    waiting: VecDeque<Waiting>,
    position: i64,
    seqs: [i64; RUNS],
    ended: HashSet<usize>,
    /// The open message of a run.
    open: HashMap<usize, SpanId>,
    messages: usize,
}

impl Writer {
    /// Whoever follows the first run finds that it exists.
    pub(super) fn new(log: Arc<Log>, gate: Gate) -> Self {
        let mut writer = Self {
            log,
            gate,
            waiting: VecDeque::new(),
            position: 0,
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
        if self.ended.contains(&run) {
            return;
        }
        let messages = &mut self.messages;
        let span = self.open.entry(run).or_insert_with(|| {
            *messages += 1;
            SpanId::trusted(&format!("m{messages}"))
        });
        let token = format!("é{} ", self.log.text(span).len());
        self.log.add_token(span, &token);
        let event = NewEvent::new("message.delta", Json::of(&json!({ "text": token }))).span(span.clone());
        let event = Recorded::stamp(&self.log.runs[run], event, None, DateTime::UNIX_EPOCH);
        self.waiting.push_back(Waiting::Token(event, span.clone(), token));
    }

    pub(super) fn complete(&mut self, run: usize) {
        if let Some(span) = self.open.remove(&run) {
            self.commit(run, "message.completed", &json!({ "text": self.log.text(&span) }), Some(span));
        }
    }

    pub(super) fn end(&mut self, run: usize) {
        if self.seqs[run] > 0 {
            self.complete(run);
            self.commit(run, "run.completed", &json!({}), None);
            self.ended.insert(run);
        }
    }

    pub(super) async fn publish(&mut self, count: u8) {
        let (taken, up_to) = self.take(count);
        let of_run = |waiting| match waiting {
            Waiting::Durable(place, event) => (self.log.run(&event), Publication::Durable(place, event)),
            Waiting::Token(event, span, text) => (self.log.run(&event), Publication::Delta(event, span, text)),
        };
        let turn = self.gate.turn(0).await;
        self.gate.publish(&turn, 0, up_to, taken.into_iter().map(of_run));
    }

    pub(super) async fn skip(&mut self, count: u8) {
        let (_, up_to) = self.take(count);
        let turn = self.gate.turn(0).await;
        self.gate.skip(&turn, 0, up_to);
    }

    fn begin(&mut self, run: usize) {
        if self.seqs[run] == 0 {
            self.commit(run, "run.created", &json!({}), None);
        }
    }

    fn commit(&mut self, run: usize, event_type: &str, payload: &Value, span_id: Option<SpanId>) {
        if self.ended.contains(&run) {
            return;
        }
        (self.position, self.seqs[run]) = (self.position + 1, self.seqs[run] + 1);
        let seq = Seq::new(self.seqs[run]).unwrap();
        let event = NewEvent { span_id, ..NewEvent::new(event_type, Json::of(payload)) };
        let event = Recorded::stamp(&self.log.runs[run], event, Some(seq), DateTime::UNIX_EPOCH);
        let place = LogPosition { seq, lane: 0, position: self.position };
        self.log.commit(place, event.clone());
        self.waiting.push_back(Waiting::Durable(place, event));
    }

    /// The next that wait, and how far they bring the lane.
    fn take(&mut self, count: u8) -> (Vec<Waiting>, i64) {
        let count = usize::from(count).min(self.waiting.len());
        let taken: Vec<_> = self.waiting.drain(..count).collect();
        let last = taken.iter().rev().find_map(|waiting| match waiting {
            Waiting::Durable(place, _) => Some(place.position),
            Waiting::Token(..) => None,
        });
        (taken, last.unwrap_or_else(|| self.gate.published(0)))
    }
}
