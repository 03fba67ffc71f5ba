//! Wire shapes of runs: what a client sends to create one and what it gets back.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::problem::{Code, Problem};
use crate::{
    domain::{
        context::{Origin, Role, RunContext},
        event::timestamp,
        id::{Name, RunId, ThreadId, Title},
        json::Json,
        limits::{LEASE_MS_DEFAULT, LEASE_MS_MAX, METADATA_BYTES_MAX, PAYLOAD_BYTES_MAX, TAGS_MAX},
        principal::OwnerId,
        run::{Spec, Status},
    },
    store::runs::RunRecord,
};

/// A new run. Everything is optional.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateRun {
    /// A `UUIDv7` of today (± 24 h), so that a retry creates nothing twice. Made by the server when absent.
    #[schema(value_type = Option<uuid::Uuid>)]
    pub run_id: Option<RunId>,
    /// 1–255 of `[A-Za-z0-9._:@+-]`; a child run takes its parent's when it has none.
    #[schema(value_type = Option<String>)]
    pub thread_id: Option<ThreadId>,
    #[schema(value_type = Option<String>)]
    pub session_id: Option<Name>,
    /// A run of the same owner that this one works for.
    #[schema(value_type = Option<uuid::Uuid>)]
    pub parent_run_id: Option<RunId>,
    /// 1–128 visible ASCII characters.
    #[schema(value_type = Option<String>)]
    pub agent: Option<Name>,
    /// Default `agent`.
    pub role: Option<Role>,
    /// At most 512 characters on one line.
    #[schema(value_type = Option<String>)]
    pub title: Option<Title>,
    /// Any JSON of at most 64 KiB.
    #[schema(value_type = Option<serde_json::Value>)]
    pub input: Option<Json>,
    /// A JSON object of at most 64 KiB.
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>)]
    pub metadata: Option<Json>,
    /// At most 32 names.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub tags: Vec<Name>,
    /// `false` leaves the run `queued`. Default `true`.
    pub start: Option<bool>,
    /// When the run began, if its producer tells of it later: within 24 hours of now. The server's clock when absent.
    pub at: Option<DateTime<Utc>>,
    /// Asks for a lease: the run reads `stalled` after so many milliseconds without event or heartbeat. 0 means 60 000.
    pub lease_ms: Option<i64>,
}

impl CreateRun {
    /// Checks the bounds and makes the spec of a run.
    pub(super) fn into_spec(
        self,
        owner: &OwnerId,
        run_id: RunId,
        parent: Option<&RunContext>,
        trace_id: String,
    ) -> Result<Spec, Problem> {
        let too_large = |field: &str, most: usize| {
            Err(Problem::new(Code::TooLarge, format!("{field} may have {most} bytes")).field(field))
        };
        if self.input.as_ref().is_some_and(|input| input.as_str().len() > PAYLOAD_BYTES_MAX) {
            return too_large("input", PAYLOAD_BYTES_MAX);
        }
        let metadata = self.metadata.unwrap_or_else(Json::empty);
        if metadata.as_str().len() > METADATA_BYTES_MAX {
            return too_large("metadata", METADATA_BYTES_MAX);
        }
        if !metadata.as_str().starts_with('{') {
            return Err(Problem::new(Code::InvalidRequest, "metadata must be an object").field("metadata"));
        }
        if self.tags.len() > TAGS_MAX {
            return Err(Problem::new(Code::TooLarge, format!("a run may have {TAGS_MAX} tags")).field("tags"));
        }
        if self.lease_ms.is_some_and(|lease_ms| !(0..=LEASE_MS_MAX).contains(&lease_ms)) {
            let detail = format!("a lease is 0 to {LEASE_MS_MAX} milliseconds");
            return Err(Problem::new(Code::InvalidRequest, detail).field("lease_ms"));
        }
        Ok(Spec {
            context: RunContext {
                run_id,
                root_run_id: parent.map_or(run_id, |parent| parent.root_run_id),
                parent_run_id: parent.map(|parent| parent.run_id),
                owner_id: owner.clone(),
                thread_id: self.thread_id.or_else(|| parent.and_then(|parent| parent.thread_id.clone())),
                session_id: self.session_id.or_else(|| parent.and_then(|parent| parent.session_id.clone())),
                role: self.role.unwrap_or(Role::Agent),
                agent: self.agent,
                origin: parent.and_then(|parent| parent.origin.clone()),
                trace_id: Some(trace_id),
            },
            title: self.title,
            input: self.input,
            metadata,
            tags: self.tags,
            lease_ms: self.lease_ms.map(|ms| if ms == 0 { LEASE_MS_DEFAULT } else { ms }),
            start: self.start.unwrap_or(true),
        })
    }
}

/// A run and where it stands. Its status is a fold of its events.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Run {
    pub run_id: uuid::Uuid,
    pub root_run_id: uuid::Uuid,
    pub parent_run_id: Option<uuid::Uuid>,
    /// The owner's principal key, 64 hexadecimal digits.
    pub owner_id: String,
    pub thread_id: Option<String>,
    pub session_id: Option<String>,
    pub agent: Option<String>,
    pub role: Role,
    pub title: Option<String>,
    pub status: Status,
    #[schema(value_type = Option<serde_json::Value>)]
    pub input: Option<Json>,
    #[schema(value_type = Option<serde_json::Value>)]
    pub output: Option<Json>,
    #[schema(value_type = Option<serde_json::Value>)]
    pub error: Option<Json>,
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub metadata: Json,
    pub tags: Vec<String>,
    /// The seq of the last event.
    pub last_seq: i64,
    /// RFC 3339, UTC, microseconds.
    pub created_at: String,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    pub last_event_at: String,
    /// A running run whose producer has been silent for longer than its lease.
    pub stalled: bool,
    /// How long its producer, or who carries it out, may be silent, milliseconds; null when nobody has to be heard.
    pub lease_ms: Option<i64>,
    /// Where the message came from that it answers; null when it came of none.
    pub origin: Option<Origin>,
    /// The W3C trace that it is part of, 32 hexadecimal digits.
    pub trace_id: Option<String>,
    /// Where to follow it.
    pub stream_url: String,
    /// What its steps took so far by their own account, by their names, if it has any; only of one run that is asked for, with at most
    /// 20 000 events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_durations_ms: Option<BTreeMap<String, f64>>,
    /// What else passed between the starts and ends of these steps: people were waited for, and commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_waiting_ms: Option<BTreeMap<String, f64>>,
}

impl Run {
    pub(super) fn of(record: RunRecord, now: DateTime<Utc>) -> Self {
        let (stalled, head, context) = (record.is_stalled(now), record.head, record.context);
        Self {
            run_id: context.run_id.uuid(),
            root_run_id: context.root_run_id.uuid(),
            parent_run_id: context.parent_run_id.map(RunId::uuid),
            owner_id: context.owner_id.as_str().to_owned(),
            thread_id: context.thread_id.map(|id| id.as_str().to_owned()),
            session_id: context.session_id.map(|id| id.as_str().to_owned()),
            agent: context.agent.map(|name| name.as_str().to_owned()),
            role: context.role,
            title: record.title,
            status: head.status,
            input: record.input,
            output: head.output,
            error: head.error,
            metadata: record.metadata,
            tags: record.tags,
            last_seq: head.last_seq.get(),
            created_at: timestamp(head.created_at),
            started_at: head.started_at.map(timestamp),
            ended_at: head.ended_at.map(timestamp),
            last_event_at: timestamp(head.last_event_at),
            stalled,
            lease_ms: record.lease_ms,
            origin: context.origin,
            trace_id: context.trace_id,
            stream_url: format!("/api/stream/runs/{}", context.run_id),
            node_durations_ms: None,
            node_waiting_ms: None,
        }
    }
}

/// A page of runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunList {
    pub runs: Vec<Run>,
    /// Send it back as `cursor` for the next page; absent on the last.
    pub next_cursor: Option<String>,
    /// Follow `/api/stream/runs?after=` from here to miss nothing that this page does not show.
    pub stream_cursor: String,
}

/// The statuses a list may be narrowed to.
pub(super) fn statuses(text: &str) -> Result<Vec<Status>, Problem> {
    let status = |word: &str| {
        Status::parse(word).ok_or_else(|| Problem::new(Code::InvalidRequest, "there is no such status").field("status"))
    };
    text.split(',').filter(|word| !word.is_empty()).map(status).collect()
}
