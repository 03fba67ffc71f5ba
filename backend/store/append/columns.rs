//! A batch as parameters of the statement: arrays, and JSON for rare parts.

use std::collections::HashMap;

use chrono::{DateTime, SubsecRound as _, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::{Batch, HeadWrite, NewRunRow};
use crate::{
    domain::{
        artifact::Hash,
        chain::Chained,
        context::RunContext,
        event::Recorded,
        id::{EventId, Name, RunId, SpanId},
        json::Json,
        price::Prices,
        run::RunFields,
        usage::{Call, Usage},
    },
    store::pieces::Owners,
};

/// The events of a batch.
#[derive(Default)]
pub(super) struct Events<'a> {
    pub run_id: Vec<Uuid>,
    /// The index, from 1, of the event's run among the batch's heads.
    pub head: Vec<i32>,
    /// 1 for the first event of its run in the batch.
    pub nth: Vec<i64>,
    pub owner_id: Vec<&'a str>,
    pub event_type: Vec<&'a str>,
    pub role: Vec<&'a str>,
    pub agent: Vec<Option<&'a str>>,
    pub span_id: Vec<Option<&'a str>>,
    pub parent_span_id: Vec<Option<&'a str>>,
    pub event_id: Vec<Option<&'a str>>,
    pub at: Vec<DateTime<Utc>>,
    pub payload: Vec<&'a str>,
}

impl<'a> Events<'a> {
    pub(super) fn of(batch: &'a Batch) -> Self {
        let heads: HashMap<RunId, (i32, i64)> =
            (1..).zip(&batch.heads).map(|(n, head)| (head.run_id, (n, head.seq_before.get()))).collect();
        let mut columns = Self::default();
        for event in &batch.events {
            let seq = event.seq.expect("only durable events are appended").get();
            let (head, before) = heads.get(&event.run_id).copied().unwrap_or_default();
            columns.run_id.push(event.run_id.uuid());
            columns.head.push(head);
            columns.nth.push(seq - before);
            columns.owner_id.push(&event.owner_id);
            columns.event_type.push(event.event_type.as_str());
            columns.role.push(event.role.as_str());
            columns.agent.push(event.agent.as_deref());
            columns.span_id.push(event.span_id.as_ref().map(SpanId::as_str));
            columns.parent_span_id.push(event.parent_span_id.as_ref().map(SpanId::as_str));
            columns.event_id.push(event.event_id.as_ref().map(EventId::as_str));
            columns.at.push(event.at);
            columns.payload.push(event.payload.as_str());
        }
        columns
    }
}

/// The run heads that a batch advances.
#[derive(Default)]
pub(super) struct Heads<'a> {
    pub run_id: Vec<Uuid>,
    pub owner_id: Vec<&'a str>,
    pub status_before: Vec<&'a str>,
    pub status: Vec<&'a str>,
    pub seq_before: Vec<i64>,
    /// False if the events may get later numbers.
    pub is_exact: Vec<bool>,
    pub events: Vec<i64>,
    pub last_index: Vec<i64>,
    pub output: Vec<Option<&'a str>>,
    pub error: Vec<Option<&'a str>>,
    pub started_at: Vec<Option<DateTime<Utc>>>,
    pub ended_at: Vec<Option<DateTime<Utc>>>,
    pub last_event_at: Vec<DateTime<Utc>>,
}

impl<'a> Heads<'a> {
    pub(super) fn of(writes: &'a [HeadWrite]) -> Self {
        let mut heads = Self::default();
        for write in writes {
            heads.run_id.push(write.run_id.uuid());
            heads.owner_id.push(write.owner_id.as_str());
            heads.status_before.push(write.status_before.as_str());
            heads.status.push(write.head.status.as_str());
            heads.seq_before.push(write.seq_before.get());
            heads.is_exact.push(write.is_exact);
            heads.events.push(write.head.last_seq.get() - write.seq_before.get());
            heads.last_index.push(write.last_index as i64);
            heads.output.push(write.head.output.as_ref().map(Json::as_str));
            heads.error.push(write.head.error.as_ref().map(Json::as_str));
            heads.started_at.push(write.head.started_at);
            heads.ended_at.push(write.head.ended_at);
            heads.last_event_at.push(write.head.last_event_at);
        }
        heads
    }
}

/// The links of a batch, and what is needed to recompute them after another writer's events.
#[derive(Default)]
pub(super) struct Chain<'a> {
    /// 32 bytes per event.
    pub links: Vec<u8>,
    /// Content hashes, 32 bytes per event, run by run in the order of the heads.
    pub contents: Vec<u8>,
    /// Byte offset at which the contents of each head begin, from 1.
    pub first: Vec<i32>,
    pub link_before: Vec<Option<&'a [u8]>>,
}

impl<'a> Chain<'a> {
    pub(super) fn of(batch: &'a Batch) -> Self {
        let mut chain = Self { contents: vec![0; 32 * batch.chain.len()], ..Self::default() };
        let (mut places, mut place) = (HashMap::new(), 0);
        for head in &batch.heads {
            places.insert(head.run_id, place);
            chain.first.push(i32::try_from(32 * place + 1).unwrap_or(i32::MAX));
            chain.link_before.push(head.link_before.as_ref().map(Hash::as_bytes));
            place += usize::try_from(head.head.last_seq.get() - head.seq_before.get()).unwrap_or_default();
        }
        for (event, Chained { content, link }) in batch.events.iter().zip(&batch.chain) {
            chain.links.extend_from_slice(link.as_bytes());
            let place = places.get_mut(&event.run_id).expect("every event of a batch has a head");
            chain.contents[32 * *place..][..32].copy_from_slice(content.as_bytes());
            *place += 1;
        }
        chain
    }
}

/// Rows as the JSON that a statement reads: they are few, and have many columns. `None` if there are none.
fn json(rows: &[impl Serialize]) -> Option<String> {
    (!rows.is_empty()).then(|| serde_json::to_string(rows).expect("columns are values that JSON has"))
}

/// A model call recorded in a batch.
#[derive(Serialize)]
struct CallRow {
    /// Index of its event in the batch, from 1.
    n: i64,
    run_id: Uuid,
    model: Option<String>,
    input_tokens: u64,
    cached_tokens: u64,
    cache_write_tokens: u64,
    output_tokens: u64,
    reasoning_tokens: u64,
    cost_usd: Option<f64>,
}

impl CallRow {
    fn all(batch: &Batch, prices: &Prices) -> Vec<Self> {
        let row = |(n, event): (i64, &Recorded)| {
            let Call { model, usage } = Call::of(event)?;
            let Usage { input, cached, cache_write, output, reasoning } = usage;
            let cost_usd = prices.cost(model.as_deref(), &usage, event.at);
            Some(Self {
                n,
                run_id: event.run_id.uuid(),
                model,
                input_tokens: input,
                cached_tokens: cached,
                cache_write_tokens: cache_write,
                output_tokens: output,
                reasoning_tokens: reasoning,
                cost_usd,
            })
        };
        (1..).zip(&batch.events).filter_map(row).collect()
    }
}

/// A run that a batch creates: the columns of `store.run` that no event changes, by their names.
#[derive(Serialize)]
struct NewRun<'a> {
    #[serde(flatten)]
    context: &'a RunContext,
    origin_channel: Option<&'a Name>,
    origin_chat: Option<&'a str>,
    origin_user: Option<&'a str>,
    #[serde(flatten)]
    fields: &'a RunFields,
    depth: i16,
    /// In the text format of `bytea`.
    request_hash: String,
    /// Truncated to microseconds: Postgres would round.
    created_at: DateTime<Utc>,
    imported_at: Option<DateTime<Utc>>,
    /// Not a column: whether it gets a row of `store.job` as well.
    is_job: bool,
}

impl<'a> NewRun<'a> {
    fn of(write: &'a HeadWrite) -> Option<Self> {
        let NewRunRow { spec, depth, request_hash, imported_at } = write.birth.as_deref()?;
        let origin = spec.context.origin.as_ref();
        Some(Self {
            context: &spec.context,
            origin_channel: origin.map(|origin| &origin.channel),
            origin_chat: origin.map(|origin| &*origin.chat),
            origin_user: origin.and_then(|origin| origin.user.as_deref()),
            fields: &spec.fields,
            depth: *depth,
            request_hash: format!("\\x{}", hex::encode(request_hash)),
            created_at: write.head.created_at.trunc_subsecs(6),
            imported_at: imported_at.map(|at| at.trunc_subsecs(6)),
            is_job: spec.is_job(),
        })
    }
}

/// An owner of events of a batch, and the last piece that is known to be noted.
#[derive(Serialize)]
struct OwnerRow<'a> {
    owner_id: &'a str,
    noted: Option<i64>,
}

/// Parts that most batches do not have.
pub(super) struct Rare {
    pub births: Option<String>,
    pub aliases: Option<String>,
    pub calls: Option<String>,
}

impl Rare {
    pub(super) fn of(batch: &Batch, prices: &Prices) -> Self {
        let births: Vec<NewRun<'_>> = batch.heads.iter().filter_map(NewRun::of).collect();
        Self { births: json(&births), aliases: json(&batch.aliases), calls: json(&CallRow::all(batch, prices)) }
    }

    pub(super) fn is_none(&self) -> bool {
        self.births.is_none() && self.aliases.is_none() && self.calls.is_none()
    }
}

/// The owners of a batch as JSON, for the notes of its pieces.
pub(super) fn noted(owners: &Owners) -> Option<String> {
    let rows = owners.owner_id.iter().zip(&owners.noted);
    json(&rows.map(|(owner_id, noted)| OwnerRow { owner_id, noted: *noted }).collect::<Vec<_>>())
}
