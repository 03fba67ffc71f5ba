//! [`RemoteFacts`]: what a server's log says about a run's questions and the runs below it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use super::{PATIENCE, journal_error};
use crate::{
    client::{Client, Error, Kind},
    domain::{
        context::RunContext,
        id::{RunId, SpanId},
        interrupt::Decision,
        json::Json,
        run::Status,
    },
    engine::{
        journal::JournalError,
        visit::{Answered, ChildEnd, Facts},
    },
};

/// Events of one page, and runs of one.
const PAGE_ROWS: i64 = 1_000;
const PAGE_RUNS: usize = 100;

/// Reads one run's log over HTTP. What was read once is not read again.
pub struct RemoteFacts {
    client: Client,
    context: Arc<RunContext>,
    known: Mutex<Known>,
}

/// The answers up to a place in the log.
#[derive(Default)]
struct Known {
    seq: i64,
    /// The id of the event with that seq.
    after: Option<String>,
    answers: HashMap<SpanId, (Decision, Option<Value>)>,
    asked: HashMap<SpanId, Vec<Json>>,
}

impl Known {
    fn answer(&self, interrupt: &SpanId) -> Option<Answered> {
        let (decision, value) = self.answers.get(interrupt)?.clone();
        Some(Answered { decision, value, asked: self.asked.get(interrupt).cloned().unwrap_or_default() })
    }
}

/// A page of questions and answers.
#[derive(Deserialize)]
struct Page {
    events: Vec<Told>,
    next_after: i64,
    last_id: String,
    has_more: bool,
}

/// An `interrupt.requested` or `interrupt.resolved`.
#[derive(Deserialize)]
struct Told {
    #[serde(rename = "type")]
    event_type: String,
    span_id: Option<SpanId>,
    payload: Json,
}

/// A run, as far as its end goes.
#[derive(Deserialize)]
struct Run {
    run_id: RunId,
    status: Status,
    output: Option<Value>,
    error: Option<Value>,
    created_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
}

#[derive(Deserialize)]
struct Runs {
    runs: Vec<Run>,
    next_cursor: Option<String>,
}

impl RemoteFacts {
    pub fn new(client: Client, context: Arc<RunContext>) -> Self {
        Self { client, context, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads on in the log; says whether there is more.
    async fn read_on(&self) -> Result<bool, Error> {
        let (run, after) = (self.context.run_id.to_string(), self.known().after.clone());
        let query = [
            ("after", after.unwrap_or_else(|| "0".to_owned())),
            ("limit", PAGE_ROWS.to_string()),
            ("types", "interrupt.requested,interrupt.resolved".to_owned()),
        ];
        let segments = ["runs", run.as_str(), "events"];
        let page: Page = self.client.insist(PATIENCE, |_| self.client.get(&segments, &query)).await?;
        let mut known = self.known();
        if page.next_after > known.seq {
            (known.seq, known.after) = (page.next_after, Some(page.last_id));
        }
        for Told { event_type, span_id, payload } in page.events {
            let Some(interrupt) = span_id else { continue };
            if event_type == "interrupt.requested" {
                known.asked.entry(interrupt).or_default().push(payload);
            } else if let Some(decision) = payload.member::<Decision>("decision") {
                known.answers.insert(interrupt, (decision, payload.member::<Value>("value")));
            }
        }
        Ok(page.has_more)
    }

    /// The runs below this one until all of these were seen: the newest come first, and those are the ones it waits for.
    async fn below(&self, wanted: &[RunId]) -> Result<HashMap<RunId, Run>, Error> {
        let (mut found, mut cursor) = (HashMap::new(), None::<String>);
        loop {
            let mut query = vec![("parent_run_id", self.context.run_id.to_string()), ("limit", PAGE_RUNS.to_string())];
            query.extend(cursor.map(|cursor| ("cursor", cursor)));
            let page: Runs = self.client.insist(PATIENCE, |_| self.client.get(&["runs"], &query)).await?;
            found.extend(page.runs.into_iter().map(|run| (run.run_id, run)).filter(|(id, _)| wanted.contains(id)));
            cursor = page.next_cursor;
            if cursor.is_none() || found.len() == wanted.len() {
                return Ok(found);
            }
        }
    }

    /// A run that is not below this one.
    async fn other(&self, run: RunId) -> Result<Option<Run>, Error> {
        let run = run.to_string();
        let segments = ["runs", run.as_str()];
        match self.client.insist(PATIENCE, |_| self.client.get(&segments, &[])).await {
            Ok(run) => Ok(Some(run)),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn ended(&self, wanted: &[RunId]) -> Result<Vec<ChildEnd>, Error> {
        let mut found = self.below(wanted).await?;
        let mut ends = Vec::with_capacity(wanted.len());
        for id in wanted {
            let run = match found.remove(id) {
                Some(run) => Some(run),
                None => self.other(*id).await?,
            };
            ends.extend(run.and_then(end));
        }
        Ok(ends)
    }
}

fn end(run: Run) -> Option<ChildEnd> {
    let Run { run_id, status, output, error, created_at, ended_at } = run;
    let took = (ended_at? - created_at).to_std().unwrap_or_default();
    Some(ChildEnd { run_id, status, output, error, took })
}

impl Facts for RemoteFacts {
    fn answer<'a>(&'a self, interrupt: &'a SpanId) -> BoxFuture<'a, Result<Option<Answered>, JournalError>> {
        Box::pin(async move {
            loop {
                if let Some(answered) = self.known().answer(interrupt) {
                    return Ok(Some(answered));
                }
                let has_more = self.read_on().await.map_err(|error| journal_error(&error))?;
                if !has_more {
                    return Ok(self.known().answer(interrupt));
                }
            }
        })
    }

    fn ends<'a>(&'a self, runs: &'a [RunId]) -> BoxFuture<'a, Result<Vec<ChildEnd>, JournalError>> {
        Box::pin(async move { self.ended(runs).await.map_err(|error| journal_error(&error)) })
    }
}
