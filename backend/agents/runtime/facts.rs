//! [`StoreFacts`]: what the log says about the questions of a run and the runs below it.

use futures::future::BoxFuture;
use serde_json::Value;

use crate::{
    domain::{
        context::RunContext,
        id::{RunId, SpanId},
        interrupt::Decision,
        json::Json,
        principal::OwnerId,
    },
    engine::{
        journal::JournalError,
        visit::{Answered, ChildEnd, Facts},
    },
    store::{Store, events::INTERRUPT_EVENTS},
};

/// Reads one run's log. Each question is its own short use of the database.
#[derive(Clone, Debug)]
pub struct StoreFacts {
    store: Store,
    owner: OwnerId,
    run: RunId,
}

impl StoreFacts {
    pub fn new(store: Store, context: &RunContext) -> Self {
        Self { store, owner: context.owner_id.clone(), run: context.run_id }
    }
}

impl Facts for StoreFacts {
    fn answer<'a>(&'a self, interrupt: &'a SpanId) -> BoxFuture<'a, Result<Option<Answered>, JournalError>> {
        Box::pin(async move {
            let known = self.store.interrupt(&self.owner, self.run, interrupt.as_str()).await?;
            let resolved = known.iter().find(|event| event.event_type.as_str() == "interrupt.resolved");
            Ok(resolved.and_then(|event| {
                let decision: Decision = event.payload.member("decision")?;
                let requested = known.iter().filter(|event| event.event_type.as_str() == "interrupt.requested");
                let mut asked: Vec<Json> = requested.map(|event| event.payload.clone()).collect();
                if known.len() as i64 == INTERRUPT_EVENTS {
                    // There may be others.
                    asked.push(Json::empty());
                }
                Some(Answered { decision, value: event.payload.member::<Value>("value"), asked })
            }))
        })
    }

    fn ends<'a>(&'a self, runs: &'a [RunId]) -> BoxFuture<'a, Result<Vec<ChildEnd>, JournalError>> {
        Box::pin(async move {
            let mut ends = Vec::with_capacity(runs.len());
            for run_id in runs.iter().copied() {
                let Some(record) = self.store.run(&self.owner, run_id).await? else { continue };
                if let Some(ended_at) = record.head.ended_at {
                    let value =
                        |json: &Option<Json>| json.as_ref().and_then(|json| serde_json::from_str(json.as_str()).ok());
                    ends.push(ChildEnd {
                        run_id,
                        status: record.head.status,
                        output: value(&record.head.output),
                        error: value(&record.head.error),
                        took: (ended_at - record.head.created_at).to_std().unwrap_or_default(),
                    });
                }
            }
            Ok(ends)
        })
    }
}
