//! Events: emit them, read pages of them.

use std::time::Duration;

use axum::{
    Json as Reply,
    body::Body as ReplyBody,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use bytes::{BufMut, Bytes, BytesMut};
use chrono::{DateTime, Datelike, Timelike, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    body::{AtMost, misread},
    extract::{Body, Caller, Query, RunPath},
    handler::routes,
    index::{self, EventIndex},
    problem::{Code, Problem, invalid_event},
    replies,
};
use crate::{
    domain::{
        context::RunContext,
        cursor::RunCursor,
        event::{EventKind, EventType, NewEvent, TypeFilter},
        history::Tag,
        id::{EventId, Name, RunId, Seq, SpanId},
        interrupt::{self, OWN_EVENT_IDS},
        json::Json,
        limits::{
            ANSWER_MS_MAX, EMIT_EVENTS_MAX, EVENT_PAGE_BYTES_MAX, EVENT_PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX,
            PAYLOAD_BYTES_MAX, REPLAY_ROWS,
        },
        principal::{OwnerId, Scope},
    },
    quota::Share,
    store::{
        self,
        replica::{Readers, Wanted},
    },
    timeline::{emit::EmitError, resume::check_current},
    wire::events::{EmitReply, EmitReplyEvent, EventPage, RunEvent},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(emit, page))
}

/// An event to emit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EmitEvent {
    /// Dotted lower-case words, at most 96 bytes; families such as `tool.*` are reserved for their documented types.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "tool.started")]
    event_type: String,
    /// Any JSON; `{}` when absent. Over 64 KiB it becomes an artifact and the event keeps a pointer. A `.delta` needs
    /// `{"text": "…"}` of at most 64 KiB.
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Json>,
    /// Pairs `X.started` with `X.completed`; 1–128 characters.
    span_id: Option<String>,
    parent_span_id: Option<String>,
    /// 1–128 characters. The same one twice in a run is one event, so a retry is safe.
    event_id: Option<String>,
    /// When it happened; the server's clock when absent. Stored with microsecond precision.
    at: Option<DateTime<Utc>>,
    /// If given, must be the run's own.
    role: Option<String>,
    /// If given, must be the run's own.
    agent: Option<String>,
}

/// Emit events, all or none.
///
/// The body is one event, an array of events, or NDJSON. The reply is sent after the commit: what it lists is durable.
#[utoipa::path(post, operation_id = "emit_events", path = "/api/runs/{run_id}/events", tag = "events", params(("run_id" = uuid::Uuid, Path)),
    request_body(content((Vec<EmitEvent> = "application/json"), (String = "application/x-ndjson"))),
    responses((status = 200, body = EmitReply, description = "Committed"), (status = 400, body = Problem, description = "Rejected as a whole"),
    (status = 404, body = Problem, description = "Not found, or of another owner"), (status = 409, body = Problem, description = "`run_ended`, `invalid_transition`"),
    (status = 413, body = Problem, description = "Over a limit"), (status = 429, body = Problem, description = "`busy`"),
    (status = 503, body = Problem, description = "`unavailable`: nothing stored; `outcome_unknown`: send the same `event_id`s again")))]
async fn emit(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    body: Body,
) -> Result<Reply<EmitReply>, Problem> {
    let owner = caller.needs_run(&server, Scope::Emit, run).await?.owner();
    let ack = in_time(Box::pin(async {
        let context = server.timeline.context(owner, run).await?.ok_or_else(Problem::not_found)?;
        let text = std::str::from_utf8(&body.bytes);
        let text = text.map_err(|_| Problem::new(Code::InvalidEvent, "the body is not UTF-8"))?;
        let events = read(&context, text, body.is_ndjson)?;
        server.emits.take(owner, events.len()).map_err(|wait| {
            Problem::new(Code::Busy, "the principal exceeds its limit of events per second").after(wait)
        })?;
        Ok(server.timeline.emit_run_event(&context, events).await?)
    }))
    .await?;
    let seqs = || ack.events.iter().filter_map(|event| event.seq.map(Seq::get));
    Ok(Reply(EmitReply {
        first_seq: seqs().min(),
        last_seq: seqs().max(),
        events: ack
            .events
            .iter()
            .map(|event| EmitReplyEvent {
                seq: event.seq.map(Seq::get),
                event_id: event.event_id.as_ref().map(|id| id.as_str().to_owned()),
                duplicate: event.duplicate,
            })
            .collect(),
    }))
}

/// Bounds the time of an emit. The lane continues after a timeout, so the outcome is then unknown.
pub(super) async fn in_time<T>(work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let wait = Duration::from_millis(ANSWER_MS_MAX);
    tokio::time::timeout(wait, work).await.unwrap_or_else(|_| Err(EmitError::OutcomeUnknown.into()))
}

/// Parses and validates events of a run, from a request or a runner.
pub(super) fn read(context: &RunContext, text: &str, is_ndjson: bool) -> Result<Vec<NewEvent>, Problem> {
    let events = read_events(text, is_ndjson)?;
    if events.len() > EMIT_EVENTS_MAX {
        return Err(Problem::new(Code::TooLarge, format!("one request may have at most {EMIT_EVENTS_MAX} events")));
    }
    events.into_iter().enumerate().map(|(index, event)| check(context, index, event)).collect()
}

type EmitEvents = AtMost<EmitEvent, EMIT_EVENTS_MAX>;

fn read_events(text: &str, is_ndjson: bool) -> Result<Vec<EmitEvent>, Problem> {
    let invalid = |detail: String| Problem::new(Code::InvalidEvent, detail);
    let events: Vec<EmitEvent> = if is_ndjson {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let read = |(number, line): (usize, &str)| {
            let flaw = |error| misread::<EmitEvent>(Code::InvalidEvent, line, &error);
            serde_json::from_str(line).map_err(|error| flaw(error).within(format!("line {}", number + 1)))
        };
        lines.take(EMIT_EVENTS_MAX + 1).map(read).collect::<Result<_, _>>()?
    } else if text.trim_start().starts_with('[') {
        let flaw = |error| misread::<EmitEvents>(Code::InvalidEvent, text, &error);
        serde_json::from_str::<EmitEvents>(text).map_err(flaw)?.0
    } else {
        vec![serde_json::from_str(text).map_err(|error| misread::<EmitEvent>(Code::InvalidEvent, text, &error))?]
    };
    if events.is_empty() { Err(invalid("the body has no events".to_owned())) } else { Ok(events) }
}

/// Validates one event.
fn check(context: &RunContext, index: usize, event: EmitEvent) -> Result<NewEvent, Problem> {
    let wrong = |field: &'static str| move |rule: crate::domain::id::Malformed| invalid_event(index, field, rule.0);
    let event_type: EventType = event.event_type.parse().map_err(wrong("type"))?;
    event_type.check_producer().map_err(wrong("type"))?;
    let foreign = |given: &Option<String>, own: Option<&str>| given.as_deref().is_some_and(|given| Some(given) != own);
    if foreign(&event.role, Some(context.role.as_str()))
        || foreign(&event.agent, context.agent.as_ref().map(Name::as_str))
    {
        let detail = format!("the role or agent of event {index} differs from its run's");
        return Err(Problem::new(Code::RoleMismatch, detail).hint("omit role and agent: the server sets the run's"));
    }
    let payload = event.payload.unwrap_or_else(Json::empty);
    if event_type.is_ephemeral() && payload.as_str().len() > PAYLOAD_BYTES_MAX {
        let detail = format!("the payload of event {index} is over {PAYLOAD_BYTES_MAX} bytes");
        return Err(Problem::new(Code::TooLarge, detail)
            .field(format!("events[{index}].payload"))
            .hint("send a long text as several deltas"));
    }
    if event.event_id.as_deref().is_some_and(|id| id.starts_with(OWN_EVENT_IDS)) {
        return Err(invalid_event(index, "event_id", "event ids that begin with runreel: are reserved for the server"));
    }
    let event = NewEvent {
        event_type,
        payload,
        span_id: event.span_id.map(|id| id.parse::<SpanId>()).transpose().map_err(wrong("span_id"))?,
        parent_span_id: event
            .parent_span_id
            .map(|id| id.parse::<SpanId>())
            .transpose()
            .map_err(wrong("parent_span_id"))?,
        event_id: event.event_id.map(|id| id.parse::<EventId>()).transpose().map_err(wrong("event_id"))?,
        at: event.at.map(|at| whole_micros(index, at)).transpose()?,
    };
    if event.event_type.is(EventKind::InterruptRequested) {
        interrupt::check_request(&event.payload).map_err(|rule| invalid_event(index, "payload.expires_at", rule))?;
    }
    if event.event_type.is_ephemeral() {
        event.delta_text().map_err(wrong("payload"))?;
    }
    Ok(event)
}

/// The table stores microseconds; a live frame must not have more digits.
fn whole_micros(index: usize, at: DateTime<Utc>) -> Result<DateTime<Utc>, Problem> {
    let within = (1970..=9999).contains(&at.year());
    let cut = at.with_nanosecond(at.nanosecond() % 1_000_000_000 / 1_000 * 1_000);
    cut.filter(|_| within).ok_or_else(|| invalid_event(index, "at", "must be a time between the years 1970 and 9999"))
}

/// What the route of events returns.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, clippy::large_enum_variant, reason = "it describes two replies")]
enum Events {
    Page(EventPage),
    Index(EventIndex),
}

/// Read a page of events, or of their index, or with `Accept: application/x-ndjson` all of them.
#[utoipa::path(get, operation_id = "list_events", path = "/api/runs/{run_id}/events", tag = "events", params(("run_id" = uuid::Uuid, Path),
    ("after" = Option<String>, Query, description = "Events after this id (`last_id`, or a frame's); default 0"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 500; of an index 1 to 5000, default 1000"),
    ("types" = Option<String>, Query, description = "Such as `tool.*,run.completed`"),
    ("seqs" = Option<String>, Query, description = "Only these events, such as `7,40-52`; at most 1000"),
    ("view" = Option<String>, Query, description = "`index`: no payloads, newest page first"),
    ("before" = Option<i64>, Query, description = "Of an index: events before this seq")),
    responses((status = 200, description = "A page, or all events as NDJSON", content((Events = "application/json"), (RunEvent = "application/x-ndjson"))),
    (status = 400, body = Problem, description = "`invalid_cursor`"), (status = 404, body = Problem, description = "Not found, or of another owner"),
    (status = 409, body = Problem, description = "`cursor_ahead`")))]
async fn page(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let owner = caller.needs_run(&server, Scope::Read, run).await?.owner().clone();
    if index::is_index(&query)? {
        return index::page(&server, &owner, run, (&query, &headers)).await;
    }
    if query.text("seqs").is_some() {
        return index::picked(&server, &owner, run, &query).await;
    }
    let after = query.text("after").map(str::parse::<RunCursor>).transpose();
    let cursor = after.map_err(|rule| Problem::new(Code::InvalidCursor, rule.0).field("after"))?.unwrap_or_default();
    let after = cursor.seq;
    let limit = query.number("limit", EVENT_PAGE_ROWS_DEFAULT, 1, PAGE_ROWS_MAX)?;
    let filter: TypeFilter = query.parsed("types")?.unwrap_or_default();
    let histories = server.timeline.histories();
    let context = server.timeline.context(&owner, run).await?.ok_or_else(Problem::not_found)?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let wanted = Wanted::After { seq: after, rows: limit, bytes: Some(EVENT_PAGE_BYTES_MAX) };
    let page = server.readers.page(&owner, run, wanted).await?.ok_or_else(Problem::not_found)?;
    check_current(page.history, &histories)?;
    if after > page.last_seq || !server.timeline.admits(&owner, run, cursor, &histories).await? {
        let detail = format!("the run's last seq is {}", page.last_seq);
        return Err(Problem::new(Code::CursorAhead, detail).field("after"));
    }
    if accept.contains("application/x-ndjson") {
        let room = replies::paged(&server, &owner)?;
        return Ok(ndjson(server.readers.clone(), (owner, room), run, (after, page.history), filter));
    }
    let (last, end) = (page.last_seq, page.events.last().map_or(after, |(place, _)| place.seq));
    let page = index::page_of(&context, page, (cursor, &histories), end < last, |kind| filter.admits(kind));
    Ok(Reply(page).into_response())
}

/// Streams all events, a page of the database at a time. The connection is cut if the log is set back.
fn ndjson(
    readers: Readers,
    (owner, room): (OwnerId, Share),
    run: RunId,
    (after, history): (Seq, Tag),
    filter: TypeFilter,
) -> Response {
    let lines = async_stream::try_stream! {
        let _room = room;
        let mut after = after;
        loop {
            let wanted = Wanted::After { seq: after, rows: REPLAY_ROWS, bytes: None };
            let page = readers.page(&owner, run, wanted).await?;
            let Some(page) = page else { return };
            if page.history != history {
                Err(store::Error::timeout())?;
            }
            let mut chunk = BytesMut::new();
            for (place, event) in &page.events {
                after = place.seq;
                if filter.admits(&event.event_type) {
                    chunk.put_slice(event.envelope().as_bytes());
                    chunk.put_u8(b'\n');
                }
            }
            if !chunk.is_empty() {
                yield chunk.freeze();
            }
            if page.complete {
                return;
            }
        }
    };
    let lines: std::pin::Pin<Box<dyn futures::Stream<Item = Result<Bytes, crate::store::Error>> + Send>> =
        Box::pin(lines);
    ([(header::CONTENT_TYPE, "application/x-ndjson")], ReplyBody::from_stream(lines)).into_response()
}
