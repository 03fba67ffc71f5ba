//! [`Answers`]: the questions and answers of a run's log, read over HTTP page by page, each page once.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Deserialize;
use serde_json::Value;

use super::host::PATIENCE;
use crate::{
    client::{Client, Error},
    domain::{
        event::EventKind,
        id::{RunId, SpanId},
        interrupt::Decision,
        json::Json,
    },
    emitters::host::Answered,
};

/// Events per page.
const PAGE_ROWS: i64 = 1_000;

/// What is known of a run's questions.
#[derive(Default)]
pub(super) struct Answers(Mutex<Known>);

/// The answers up to a position in the log.
#[derive(Default)]
struct Known {
    seq: i64,
    /// The id of the event with that seq.
    after: Option<String>,
    answers: HashMap<SpanId, (Decision, Option<Value>)>,
    asked: HashMap<SpanId, Vec<Json>>,
}

/// A page of questions and answers.
#[derive(Deserialize)]
struct Page {
    events: Vec<Event>,
    next_after: i64,
    last_id: String,
    has_more: bool,
}

/// An `interrupt.requested` or `interrupt.resolved`.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    event_type: String,
    span_id: Option<SpanId>,
    payload: Json,
}

impl Answers {
    /// The answer to an interrupt; reads on in the log until it is found or the log ends.
    pub(super) async fn get(&self, client: &Client, run: RunId, interrupt: &SpanId) -> Result<Option<Answered>, Error> {
        loop {
            if let Some(answered) = self.known().answer(interrupt) {
                return Ok(Some(answered));
            }
            if !self.read_on(client, run).await? {
                return Ok(self.known().answer(interrupt));
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the next page; returns whether there is more.
    async fn read_on(&self, client: &Client, run: RunId) -> Result<bool, Error> {
        let (run, after) = (run.to_string(), self.known().after.clone());
        let query = [
            ("after", after.unwrap_or_else(|| "0".to_owned())),
            ("limit", PAGE_ROWS.to_string()),
            ("types", "interrupt.requested,interrupt.resolved".to_owned()),
        ];
        let segments = ["runs", run.as_str(), "events"];
        let page: Page = client.insist(PATIENCE, |_| client.get(&segments, &query)).await?;
        let mut known = self.known();
        if page.next_after > known.seq {
            (known.seq, known.after) = (page.next_after, Some(page.last_id));
        }
        for Event { event_type, span_id, payload } in page.events {
            let Some(interrupt) = span_id else { continue };
            if event_type == EventKind::InterruptRequested.as_str() {
                known.asked.entry(interrupt).or_default().push(payload);
            } else if let Some(decision) = payload.member::<Decision>("decision") {
                known.answers.insert(interrupt, (decision, payload.member::<Value>("value")));
            }
        }
        Ok(page.has_more)
    }
}

impl Known {
    fn answer(&self, interrupt: &SpanId) -> Option<Answered> {
        let (decision, value) = self.answers.get(interrupt)?.clone();
        Some(Answered { decision, value, asked: self.asked.get(interrupt).cloned().unwrap_or_default() })
    }
}
