//! A batch as the arrays that the statement takes.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::{Batch, HeadWrite};
use crate::domain::{
    artifact::Hash,
    chain::Chained,
    event::Recorded,
    id::{EventId, ExternalId, Name, RunId, SpanId, ThreadId, Title},
    json::Json,
    price::Prices,
    usage::{Call, Usage},
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

/// The heads that a batch moves.
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

/// The links of a batch, and what it takes to make them again after other ones.
#[derive(Default)]
pub(super) struct Chain<'a> {
    /// Of each event, 32 bytes.
    pub links: Vec<u8>,
    /// Of each event the content, 32 bytes, run by run in the order of the heads.
    pub contents: Vec<u8>,
    /// Where the contents of each head begin, counted from 1.
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

/// A call of a model that a batch tells of.
#[derive(Serialize)]
pub(super) struct CallRow {
    /// Which event of the batch tells it, from 1.
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
    /// All of them as JSON: they are few, and have many columns. `None` if there are none.
    pub(super) fn all(batch: &Batch, prices: &Prices) -> Option<String> {
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
        let rows: Vec<Self> = (1..).zip(&batch.events).filter_map(row).collect();
        if rows.is_empty() { None } else { serde_json::to_string(&rows).ok() }
    }
}

/// The runs a batch creates.
#[derive(Default)]
pub(super) struct NewRunRows<'a> {
    pub run_id: Vec<Uuid>,
    pub owner_id: Vec<&'a str>,
    pub root_run_id: Vec<Uuid>,
    pub parent_run_id: Vec<Option<Uuid>>,
    pub depth: Vec<i16>,
    pub thread_id: Vec<Option<&'a str>>,
    pub session_id: Vec<Option<&'a str>>,
    pub agent: Vec<Option<&'a str>>,
    pub role: Vec<&'a str>,
    pub origin_channel: Vec<Option<&'a str>>,
    pub origin_chat: Vec<Option<&'a str>>,
    pub origin_user: Vec<Option<&'a str>>,
    pub trace_id: Vec<Option<&'a str>>,
    pub title: Vec<Option<&'a str>>,
    pub input: Vec<Option<&'a str>>,
    pub metadata: Vec<&'a str>,
    /// A JSON array of each run's tags: Postgres arrays of arrays must be rectangular.
    pub tags: Vec<String>,
    pub lease_ms: Vec<Option<i64>>,
    pub request_hash: Vec<&'a [u8]>,
    pub created_at: Vec<DateTime<Utc>>,
    pub is_job: Vec<bool>,
    pub external_id: Vec<Option<&'a str>>,
    pub ttl_s: Vec<Option<i64>>,
    pub imported_at: Vec<Option<DateTime<Utc>>>,
    pub now: DateTime<Utc>,
}

impl<'a> NewRunRows<'a> {
    pub(super) fn of(batch: &'a Batch) -> Self {
        let mut births = Self { now: batch.now, ..Self::default() };
        for write in &batch.heads {
            let Some(birth) = &write.birth else { continue };
            let (spec, context) = (&birth.spec, &birth.spec.context);
            let tags: Vec<&str> = spec.fields.tags.iter().map(Name::as_str).collect();
            births.run_id.push(context.run_id.uuid());
            births.owner_id.push(context.owner_id.as_str());
            births.root_run_id.push(context.root_run_id.uuid());
            births.parent_run_id.push(context.parent_run_id.map(RunId::uuid));
            births.depth.push(birth.depth);
            births.thread_id.push(context.thread_id.as_ref().map(ThreadId::as_str));
            births.session_id.push(context.session_id.as_ref().map(Name::as_str));
            births.agent.push(context.agent.as_ref().map(Name::as_str));
            births.role.push(context.role.as_str());
            births.origin_channel.push(context.origin.as_ref().map(|origin| origin.channel.as_str()));
            births.origin_chat.push(context.origin.as_ref().map(|origin| origin.chat.as_str()));
            births.origin_user.push(context.origin.as_ref().and_then(|origin| origin.user.as_deref()));
            births.trace_id.push(context.trace_id.as_deref());
            births.title.push(spec.fields.title.as_ref().map(Title::as_str));
            births.input.push(spec.fields.input.as_ref().map(Json::as_str));
            births.metadata.push(spec.fields.metadata.as_str());
            births.tags.push(serde_json::json!(tags).to_string());
            births.lease_ms.push(spec.fields.lease_ms);
            births.request_hash.push(birth.request_hash.as_slice());
            births.created_at.push(write.head.created_at);
            births.is_job.push(spec.is_job());
            births.external_id.push(spec.fields.external_id.as_ref().map(ExternalId::as_str));
            births.ttl_s.push(spec.fields.ttl_s);
            births.imported_at.push(birth.imported_at);
        }
        births
    }
}

/// The further ids that a batch gives to runs.
#[derive(Default)]
pub(super) struct Aliases<'a> {
    pub owner_id: Vec<&'a str>,
    pub alias: Vec<&'a str>,
    pub run_id: Vec<Uuid>,
    pub nth: Vec<Option<i64>>,
    pub after: Vec<i64>,
}

impl<'a> Aliases<'a> {
    pub(super) fn of(batch: &'a Batch) -> Self {
        let mut aliases = Self::default();
        for write in &batch.aliases {
            aliases.owner_id.push(write.owner_id.as_str());
            aliases.alias.push(write.alias.as_str());
            aliases.run_id.push(write.run_id.uuid());
            aliases.nth.push(write.nth);
            aliases.after.push(write.after.get());
        }
        aliases
    }
}
