//! For the display of a long run: its index, and single events.

use std::{io::Write as _, sync::Arc};

use axum::{
    Json as Reply,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Server,
    compression::accepts,
    extract::Query,
    problem::{Code, Problem},
};
use crate::{
    bus::Frame,
    domain::{
        context::RunContext,
        cursor::RunCursor,
        event::{EventType, timestamp},
        history::{Histories, Tag},
        id::{RunId, Seq, SpanId},
        index::{IndexedEvent, Level},
        json::Json,
        limits::{EVENT_PAGE_BYTES_MAX, INDEX_PAGE_BYTES_MAX, INDEX_ROWS_DEFAULT, INDEX_ROWS_MAX, SEQS_MAX},
        principal::OwnerId,
        splice::LogPosition,
    },
    store::{events::RunPage, replica::Wanted},
    timeline::resume::check_current,
    wire::events::EventPage,
};

/// A page of a run for a reader at a cursor.
pub(super) fn page_of(
    context: &Arc<RunContext>,
    page: RunPage,
    (cursor, histories): (RunCursor, &Histories),
    has_more: bool,
    admits: impl Fn(&EventType) -> bool,
) -> EventPage {
    let last_id = page.events.last().map_or(cursor, |(place, _)| id_of(*place, histories));
    let wanted = page.events.into_iter().filter(|(_, event)| admits(&event.event_type));
    let frames = wanted.map(|(place, event)| Frame::new(context.clone(), &event, Some(place), Tag::FIRST).json());
    EventPage {
        events: frames.map(|json| Json::trusted(String::from_utf8_lossy(&json).into_owned())).collect(),
        next_after: last_id.seq.get(),
        last_id: last_id.to_string(),
        last_seq: page.last_seq.get(),
        has_more,
    }
}

/// The index of some consecutive events of a run, in columns: entry `i` of each is that of the seq `first_seq + i`.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct EventIndex {
    run_id: uuid::Uuid,
    /// Null if the page has no events.
    first_seq: Option<i64>,
    /// Of the run.
    last_seq: i64,
    /// The `before` of the page before this one; null if there is none.
    next_before: Option<i64>,
    /// The id of the page's last event in the run's stream.
    last_id: Option<String>,
    /// The time of the page's first event, which `at_ms` counts from.
    began_at: Option<String>,
    at_ms: Vec<f64>,
    #[serde(rename = "type")]
    #[schema(value_type = Vec<String>)]
    event_type: Vec<EventType>,
    level: Vec<Level>,
    #[schema(value_type = Vec<Option<String>>)]
    span_id: Vec<Option<SpanId>>,
    #[schema(value_type = Vec<Option<String>>)]
    parent_span_id: Vec<Option<SpanId>>,
    /// The payload's `name`, else its `title`.
    name: Vec<Option<String>>,
    /// At most 120 characters.
    title: Vec<String>,
    /// Of the payload, bytes.
    size: Vec<u64>,
    duration_ms: Vec<Option<f64>>,
    /// The run that a `worker` event is about.
    child_run_id: Vec<Option<String>>,
}

/// An event in a stream with `view=index`. Members that are null in an index are absent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventRow {
    run_id: uuid::Uuid,
    seq: i64,
    #[serde(rename = "type")]
    event_type: String,
    at: String,
    level: Level,
    #[schema(nullable = false)]
    span_id: Option<String>,
    #[schema(nullable = false)]
    parent_span_id: Option<String>,
    #[schema(nullable = false)]
    name: Option<String>,
    title: String,
    size: u64,
    #[schema(nullable = false)]
    duration_ms: Option<f64>,
    #[schema(nullable = false)]
    child_run_id: Option<String>,
}

impl EventIndex {
    /// Takes the next event of the page, in the order of their seqs.
    fn push(&mut self, row: IndexedEvent, began_at: DateTime<Utc>) {
        let micros = (row.at - began_at).num_microseconds().unwrap_or_default();
        self.at_ms.push(micros as f64 / 1_000.0);
        self.event_type.push(row.event_type);
        self.level.push(row.level);
        self.span_id.push(row.span_id);
        self.parent_span_id.push(row.parent_span_id);
        self.name.push(row.name);
        self.title.push(row.title);
        self.size.push(row.size);
        self.duration_ms.push(row.duration_ms);
        self.child_run_id.push(row.child_run_id);
    }
}

/// Whether a request is for the index; any view but `index` is refused.
pub(super) fn is_index(query: &Query) -> Result<bool, Problem> {
    match query.text("view") {
        None => Ok(false),
        Some("index") => Ok(true),
        Some(_) => Err(Problem::new(Code::InvalidRequest, "a view must be index").field("view")),
    }
}

/// The page of the index that ends before `before`, or with the newest event.
pub(super) async fn page(
    server: &Server,
    owner: &OwnerId,
    run: RunId,
    (query, headers): (&Query, &HeaderMap),
) -> Result<Response, Problem> {
    refuse(query, &["after", "types", "seqs"], "view=index")?;
    let before = query.text("before").map(|_| query.number("before", 0, 1, i64::MAX)).transpose()?;
    let limit = query.number("limit", INDEX_ROWS_DEFAULT, 1, INDEX_ROWS_MAX)?;
    let histories = server.timeline.histories();
    let (_turn, before) = (server.timeline_turn(owner).await?, before.and_then(Seq::new));
    let wanted = Wanted::Before { seq: before, rows: limit, bytes: INDEX_PAGE_BYTES_MAX };
    let page = server.readers.page(owner, run, wanted).await?;
    let page = page.ok_or_else(Problem::not_found)?;
    check_current(page.history, &histories)?;
    let is_compressed = accepts(headers, "gzip");
    // Off the event loop, which reading megabytes of payloads would block.
    let encoded = tokio::task::spawn_blocking(move || {
        let json = serde_json::to_vec(&index_of(run, page, &histories)).map_err(std::io::Error::other)?;
        if is_compressed { smaller(&json) } else { Ok(json) }
    });
    let encoded = encoded.await.map_err(std::io::Error::other).and_then(|encoded| encoded);
    let encoded = encoded.map_err(|_| Problem::new(Code::Internal, "the index could not be created"))?;
    let head = [(header::CONTENT_TYPE, "application/json"), (header::VARY, "accept-encoding")];
    let mut response = (head, encoded).into_response();
    if is_compressed {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Gzip at a higher level than on the event loop: a reader of a long run wants all of its pages.
fn smaller(json: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(json)?;
    encoder.finish()
}

fn index_of(run: RunId, mut page: RunPage, histories: &Histories) -> EventIndex {
    page.events.reverse();
    let mut index = EventIndex { run_id: run.uuid(), last_seq: page.last_seq.get(), ..EventIndex::default() };
    let (Some((first, began)), Some((last, _))) = (page.events.first(), page.events.last()) else { return index };
    index.first_seq = Some(first.seq.get());
    index.next_before = index.first_seq.filter(|seq| *seq > 1 && !page.complete);
    index.last_id = Some(id_of(*last, histories).to_string());
    index.began_at = Some(timestamp(began.at));
    for (_, event) in &page.events {
        let spans = (event.span_id.as_ref(), event.parent_span_id.as_ref());
        let seq = event.seq.unwrap_or_default();
        index.push(IndexedEvent::of((run, seq, event.at), &event.event_type, spans, event.payload.as_str()), began.at);
    }
    index
}

/// The id of an event in its run's stream.
fn id_of(place: LogPosition, histories: &Histories) -> RunCursor {
    RunCursor { seq: place.seq, history: histories.of_position(place.lane, place.position) }
}

/// Some events of a run by their seqs.
pub(super) async fn picked(server: &Server, owner: &OwnerId, run: RunId, query: &Query) -> Result<Response, Problem> {
    refuse(query, &["after", "types", "limit"], "seqs")?;
    let seqs = read_seqs(query.text("seqs").unwrap_or_default()).ok_or_else(|| {
        let rule = format!("seqs are at most {SEQS_MAX} numbers and ranges, such as 7,40-52");
        Problem::new(Code::InvalidRequest, rule).field("seqs")
    })?;
    let histories = server.timeline.histories();
    let context = server.timeline.context(owner, run).await?.ok_or_else(Problem::not_found)?;
    let wanted = Wanted::These { seqs: &seqs, bytes: EVENT_PAGE_BYTES_MAX };
    let page = server.readers.page(owner, run, wanted).await?.ok_or_else(Problem::not_found)?;
    check_current(page.history, &histories)?;
    let has_more = !page.complete && page.events.len() < seqs.len();
    Ok(Reply(page_of(&context, page, (RunCursor::default(), &histories), has_more, |_| true)).into_response())
}

/// Numbers and ranges, each seq once.
fn read_seqs(text: &str) -> Option<Vec<i64>> {
    let mut seqs = std::collections::BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<i64>().ok().filter(|seq| is_plain && *seq > 0)
        };
        let (first, last) = (number(first)?, number(last)?);
        if last < first || last - first >= SEQS_MAX as i64 {
            return None;
        }
        seqs.extend(first..=last);
        if seqs.len() > SEQS_MAX {
            return None;
        }
    }
    Some(seqs.into_iter().collect())
}

/// Refuses parameters that have no meaning beside another: ignoring them would return what was not asked for.
fn refuse(query: &Query, names: &[&'static str], beside: &str) -> Result<(), Problem> {
    match names.iter().find(|name| query.text(name).is_some()) {
        Some(name) => {
            Err(Problem::new(Code::InvalidRequest, format!("{name} has no meaning with {beside}")).field(*name))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seqs_are_numbers_and_ranges_and_never_more_than_a_page() {
        assert_eq!(read_seqs("7,3-5,4"), Some(vec![3, 4, 5, 7]));
        assert_eq!(read_seqs("1-1000").unwrap().len(), 1_000);
        for bad in ["", "0", "-1", "5-3", "1-1001", "1-600,700-1200", "a", "1,,2", "+1", "1-9223372036854775807", "1 "]
        {
            assert_eq!(read_seqs(bad), None, "{bad}");
        }
    }
}
