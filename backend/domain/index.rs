//! The index of a run: what a row of a list or a waterfall shows of each event, without the payload.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::{
    event::{EventKind, EventType, as_timestamp},
    id::{RunId, Seq, SpanId},
    limits::INDEX_TITLE_CHARS_MAX,
    span::cut,
    title::{self, Part},
};

/// How much an event is to be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    pub fn of(event_type: &EventType) -> Self {
        match event_type.kind() {
            Some(EventKind::LogError) => Self::Error,
            Some(EventKind::LogWarn | EventKind::RunCancelled) => Self::Warn,
            Some(EventKind::LogDebug) => Self::Debug,
            _ if event_type.as_str().ends_with(".failed") => Self::Error,
            _ => Self::Info,
        }
    }
}

/// An event without its payload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IndexedEvent {
    pub run_id: RunId,
    pub seq: Seq,
    #[serde(rename = "type")]
    pub event_type: EventType,
    #[serde(serialize_with = "as_timestamp")]
    pub at: DateTime<Utc>,
    pub level: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_id: Option<SpanId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<SpanId>,
    /// The label of its span, if the payload has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub title: String,
    /// Payload size in bytes; for an offloaded payload, the original size.
    pub size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// The run that a `worker` event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<String>,
}

impl IndexedEvent {
    /// Reads a durable event.
    pub fn of(
        (run_id, seq, at): (RunId, Seq, DateTime<Utc>),
        event_type: &EventType,
        (span, parent): (Option<&SpanId>, Option<&SpanId>),
        payload: &str,
    ) -> Self {
        let value: Value = serde_json::from_str(payload).unwrap_or_default();
        let named = |name: &str| value[name].as_str().map(|text| cut(text).to_owned());
        let texts = title::parts(event_type.as_str(), &value).into_iter().filter_map(|part| match part {
            Part::Text(text) => Some(text),
            Part::DurationMs(_) | Part::Tokens(..) | Part::Stored(_) => None,
        });
        Self {
            run_id,
            seq,
            event_type: event_type.clone(),
            at,
            level: Level::of(event_type),
            span_id: span.cloned(),
            parent_span_id: parent.cloned(),
            name: named("name").or_else(|| named("title")),
            title: title::line(texts, INDEX_TITLE_CHARS_MAX),
            size: value["$artifact"]["size"].as_u64().unwrap_or(payload.len() as u64),
            duration_ms: value["duration_ms"].as_f64().filter(|ms| *ms >= 0.0),
            child_run_id: named("run_id").filter(|_| event_type.family() == "worker"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexed(event_type: &str, payload: &str) -> IndexedEvent {
        let run = "0198c0de-0000-7000-8000-000000000001".parse().unwrap();
        let place = (run, Seq::new(7).unwrap(), DateTime::UNIX_EPOCH);
        IndexedEvent::of(place, &event_type.parse().unwrap(), (None, None), payload)
    }

    #[test]
    fn a_row_has_what_a_waterfall_draws_and_nothing_of_the_payload_beyond_its_title() {
        let failed =
            indexed("tool.failed", r#"{"name":"search","duration_ms":12.5,"error":{"message":"gone","trace":"…"}}"#);
        assert_eq!((failed.name.as_deref(), failed.title.as_str()), (Some("search"), "search error: gone"));
        assert_eq!((failed.duration_ms, failed.level), (Some(12.5), Level::Error));
        let spawned = indexed("worker.spawned", r#"{"run_id":"r1","agent":"coder"}"#);
        assert_eq!((spawned.child_run_id.as_deref(), spawned.name), (Some("r1"), None));
        let stored = indexed("custom.x", r#"{"$artifact":{"size":90000},"preview":"first"}"#);
        assert_eq!((stored.size, stored.title.as_str()), (90_000, "first"));
        let bare = indexed("run.started", "{}");
        assert_eq!((bare.size, bare.title.as_str(), bare.duration_ms), (2, "", None));
    }

    #[test]
    fn a_title_is_one_clean_line_whatever_the_payload_holds() {
        let hostile =
            serde_json::json!({ "message": "\u{1b}]0;x\u{7}\n\u{202e}".repeat(10_000), "name": "n".repeat(9_000) });
        for event_type in ["log.info", "tool.started", "run.failed", "my.own"] {
            let row = indexed(event_type, &hostile.to_string());
            assert!(!row.title.chars().any(char::is_control) && row.title.chars().count() <= INDEX_TITLE_CHARS_MAX);
            assert!(row.name.unwrap().len() <= 256);
        }
    }

    #[test]
    fn the_level_of_an_event_follows_from_its_type() {
        for (event_type, level) in [
            ("tool.failed", Level::Error),
            ("my_app.import.failed", Level::Error),
            ("log.error", Level::Error),
            ("run.cancelled", Level::Warn),
            ("log.warn", Level::Warn),
            ("log.debug", Level::Debug),
            ("custom.error", Level::Info),
        ] {
            assert_eq!(Level::of(&event_type.parse().unwrap()), level, "{event_type}");
        }
    }
}
