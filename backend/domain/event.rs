//! Events, as a producer sends them ([`NewEvent`]) and as the log holds them ([`Recorded`]).
//!
//! [`Recorded::envelope`] is the only encoder. The page endpoint, live streams, replays and readers after a crash all
//! get the same bytes, because these depend on the stored columns only.

mod kind;

use std::{fmt::Write as _, str::FromStr, sync::Arc};

use chrono::{DateTime, SecondsFormat, Utc};

pub use self::kind::EventKind;
use super::{
    context::{Role, RunContext},
    id::{EventId, Malformed, RunId, Seq, SpanId, checked_text},
    json::Json,
    limits::{TYPE_BYTES_MAX, TYPE_PATTERNS_MAX},
};

checked_text!(
    /// A dotted lower-case word such as `tool.started`.
    EventType,
    "an event type is dotted lower-case words (a-z 0-9 _), at least two, at most 96 bytes",
    |text| text.len() <= TYPE_BYTES_MAX
        && text.contains('.')
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.split('.').all(|word| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        })
);

/// A reserved family without events: control frames of streams.
const STREAM: &str = "stream";

impl EventType {
    /// Its kind, if it has a meaning here.
    pub fn kind(&self) -> Option<EventKind> {
        EventKind::parse(self.as_str())
    }

    pub fn is(&self, kind: EventKind) -> bool {
        self.as_str() == kind.as_str()
    }

    /// The first word.
    pub fn family(&self) -> &str {
        self.as_str().split('.').next().unwrap_or_default()
    }

    /// The family as a metric label, from a closed set so that producers cannot add labels.
    pub fn family_label(&self) -> &'static str {
        let mut reserved = EventKind::ALL.iter().map(|kind| kind.family()).chain([STREAM]);
        reserved.find(|family| *family == self.family()).unwrap_or("other")
    }

    /// Whether it starts or ends its span, by the second of exactly two words, in any family.
    pub fn edge(&self) -> Option<Edge> {
        match self.as_str().split_once('.')?.1 {
            "started" | "spawned" => Some(Edge::Start),
            "completed" => Some(Edge::Completed),
            "failed" => Some(Edge::Failed),
            _ => None,
        }
    }

    /// Tokens and output chunks: streamed, never stored.
    pub fn is_ephemeral(&self) -> bool {
        self.as_str().ends_with(".delta")
    }

    /// Whether only the server itself emits this type.
    pub fn is_the_servers(&self) -> bool {
        self.kind().is_some_and(EventKind::is_the_servers)
    }

    /// Whether a producer may emit this type.
    pub fn check_producer(&self) -> Result<(), Malformed> {
        if self.is_the_servers() {
            return Err(Malformed("this type records a request of its own endpoint and cannot be emitted"));
        }
        let family = self.family_label();
        let is_free = family == "other" || self.is_ephemeral() && !matches!(family, "run" | STREAM | "interrupt");
        if is_free || self.kind().is_some() {
            return Ok(());
        }
        Err(Malformed("this family is reserved and has no such type; use a family of your own, such as custom"))
    }
}

impl From<EventKind> for EventType {
    fn from(kind: EventKind) -> Self {
        Self::trusted(kind.as_str())
    }
}

/// The start or end of a span that an event marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    Start,
    Completed,
    Failed,
}

/// One event as its producer sends it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    pub event_type: EventType,
    pub payload: Json,
    pub span_id: Option<SpanId>,
    pub parent_span_id: Option<SpanId>,
    pub event_id: Option<EventId>,
    /// When it happened, if the producer knows; otherwise the server's clock is used.
    pub at: Option<DateTime<Utc>>,
}

impl NewEvent {
    /// An event with only a payload.
    pub fn new(event_type: impl Into<EventType>, payload: Json) -> Self {
        Self { event_type: event_type.into(), payload, span_id: None, parent_span_id: None, event_id: None, at: None }
    }

    #[must_use]
    pub fn span(self, span_id: SpanId) -> Self {
        Self { span_id: Some(span_id), ..self }
    }

    #[must_use]
    pub fn parent_span(self, span_id: Option<SpanId>) -> Self {
        Self { parent_span_id: span_id, ..self }
    }

    #[must_use]
    pub fn event_id(self, event_id: EventId) -> Self {
        Self { event_id: Some(event_id), ..self }
    }

    /// The text of a `.delta`, which must also name its span.
    pub fn delta_text(&self) -> Result<String, Malformed> {
        if self.span_id.is_none() {
            return Err(Malformed("a delta needs the span_id of the message, reasoning or tool call it belongs to"));
        }
        if self.payload.raw_member("offset").is_some() {
            return Err(Malformed("the offset of a delta is set by the server; omit it"));
        }
        self.payload.member("text").ok_or(Malformed("a delta needs a payload of the form {\"text\": \"…\"}"))
    }
}

/// One row of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub run_id: RunId,
    /// `None` for an ephemeral event, which is not in the log.
    pub seq: Option<Seq>,
    pub event_type: EventType,
    pub role: Role,
    pub agent: Option<Arc<str>>,
    pub owner_id: Arc<str>,
    pub span_id: Option<SpanId>,
    pub parent_span_id: Option<SpanId>,
    pub event_id: Option<EventId>,
    pub at: DateTime<Utc>,
    pub payload: Json,
}

impl Recorded {
    /// Stamps an event with the identity of its run: role and agent come from the context, never from the payload.
    pub fn stamp(context: &RunContext, event: NewEvent, seq: Option<Seq>, now: DateTime<Utc>) -> Self {
        Self {
            run_id: context.run_id,
            seq,
            event_type: event.event_type,
            role: context.role,
            agent: context.agent.as_ref().map(|name| Arc::from(name.as_str())),
            owner_id: Arc::from(context.owner_id.as_str()),
            span_id: event.span_id,
            parent_span_id: event.parent_span_id,
            event_id: event.event_id,
            at: event.at.unwrap_or(now),
            payload: event.payload,
        }
    }

    /// The envelope: one line of JSON, members in a fixed order.
    pub fn envelope(&self) -> String {
        let mut out = String::with_capacity(self.payload.as_str().len() + 360);
        let _ = write!(out, r#"{{"run_id":"{}","#, self.run_id);
        self.push_head(&mut out);
        out.push_str(r#","owner_id":"#);
        push_quoted(&mut out, &self.owner_id);
        self.push_tail(&mut out);
        out
    }

    /// The members of the envelope from `seq` to `agent`.
    pub(super) fn push_head(&self, out: &mut String) {
        out.push_str(r#""seq":"#);
        match self.seq {
            Some(seq) => _ = write!(out, "{seq}"),
            None => out.push_str("null"),
        }
        let _ = write!(out, r#","type":"{}","role":"{}","agent":"#, self.event_type, self.role.as_str());
        match &self.agent {
            Some(agent) => push_quoted(out, agent),
            None => out.push_str("null"),
        }
    }

    /// The members of the envelope from `span_id` on, and the closing brace.
    pub(super) fn push_tail(&self, out: &mut String) {
        for (name, value) in [
            ("span_id", self.span_id.as_ref().map(SpanId::as_str)),
            ("parent_span_id", self.parent_span_id.as_ref().map(SpanId::as_str)),
            ("event_id", self.event_id.as_ref().map(EventId::as_str)),
        ] {
            if let Some(value) = value {
                let _ = write!(out, r#","{name}":"#);
                push_quoted(out, value);
            }
        }
        let _ = write!(out, r#","at":"{}","payload":{}}}"#, timestamp(self.at), self.payload);
    }
}

/// RFC 3339 in UTC with microseconds, the precision of the table.
pub fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// For serde's `serialize_with`: a time as [`timestamp`] writes it.
pub fn as_timestamp<S: serde::Serializer>(at: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&timestamp(*at))
}

fn push_quoted(out: &mut String, text: &str) {
    // Almost every name is plain; the serialiser is only worth calling for the rest.
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

/// The types a reader asked for: exact types or `family.*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeFilter(Vec<String>);

impl TypeFilter {
    pub fn admits(&self, event_type: &EventType) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => event_type.as_str().starts_with(prefix),
                None => event_type.as_str() == pattern,
            })
    }

    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for TypeFilter {
    type Err = Malformed;

    /// Reads `tool.*,run.completed`; an empty text admits everything.
    fn from_str(text: &str) -> Result<Self, Malformed> {
        const RULE: Malformed = Malformed("types is a comma-separated list of event types or families such as tool.*");
        let patterns: Vec<String> = text.split(',').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        let valid = |pattern: &String| {
            pattern == "*"
                || match pattern.strip_suffix(".*") {
                    Some(family) => EventType::from_str(&format!("{family}.x")).is_ok(),
                    None => EventType::from_str(pattern).is_ok(),
                }
        };
        if patterns.len() > TYPE_PATTERNS_MAX || !patterns.iter().all(valid) { Err(RULE) } else { Ok(Self(patterns)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_may_emit_documented_types_and_families_of_their_own() {
        for good in ["run.started", "tool.failed", "message.delta", "custom.x", "my_app.deep.type", "custom.delta"] {
            assert_eq!(good.parse::<EventType>().unwrap().check_producer(), Ok(()), "{good}");
        }
        for bad in ["run.created", "run.delta", "stream.end", "tool.exploded", "interrupt.resolved", "artifact.created"]
        {
            assert!(bad.parse::<EventType>().unwrap().check_producer().is_err(), "{bad}");
        }
        for bad in ["", "run", "Run.started", "run..x", ".x", "run.", "a b.c", "run.x\n", "1a.b"] {
            assert!(bad.parse::<EventType>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_envelope_is_valid_json_in_a_fixed_order_whatever_the_names_hold() {
        let mut event = Recorded {
            run_id: "0198c0de-0000-7000-8000-000000000001".parse().unwrap(),
            seq: Seq::new(7),
            event_type: "tool.started".parse().unwrap(),
            role: Role::Worker,
            agent: Some(Arc::from("a\"b\\c")),
            owner_id: Arc::from("00ff"),
            span_id: Some("call \u{2028}\"1\"".parse().unwrap()),
            parent_span_id: None,
            event_id: None,
            at: DateTime::from_timestamp_micros(1_763_000_000_000_001).unwrap(),
            payload: Json::parse(r#"{"z":1,"a":[2]}"#).unwrap(),
        };
        let value: serde_json::Value = serde_json::from_str(&event.envelope()).unwrap();
        assert_eq!(value["agent"], "a\"b\\c");
        assert_eq!(value["span_id"], "call \u{2028}\"1\"");
        assert!(event.envelope().ends_with(r#","at":"2025-11-13T02:13:20.000001Z","payload":{"z":1,"a":[2]}}"#));
        event.seq = None;
        assert!(event.envelope().contains(r#""seq":null,"#));
    }

    #[test]
    fn a_filter_admits_exact_types_and_families() {
        let filter: TypeFilter = "tool.*,run.completed".parse().unwrap();
        assert!(filter.admits(&"tool.started".parse().unwrap()));
        assert!(filter.admits(&"run.completed".parse().unwrap()));
        assert!(!filter.admits(&"run.started".parse().unwrap()));
        assert!(!filter.admits(&"toolbox.x".parse().unwrap()));
        assert!("".parse::<TypeFilter>().unwrap().is_all());
        assert!("tool.*;drop".parse::<TypeFilter>().is_err());
    }
}
