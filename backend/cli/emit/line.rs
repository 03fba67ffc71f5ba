//! One line of input: checked here, so that errors have its number, and given an id, so that it can be retried.

use chrono::{DateTime, Utc};
use serde::{Deserialize, de::IgnoredAny};

use crate::domain::{
    event::{EventType, NewEvent},
    id::{EventId, SpanId},
    json::{InvalidJson, Json},
};

/// An event that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its line number in the input; 0 for an event of this program's own.
    pub(super) number: u64,
    /// One line of JSON with an `event_id`.
    pub(super) event: String,
}

/// The members whose rules can be checked without a server. The server checks the others.
#[derive(Deserialize)]
struct Members {
    #[serde(rename = "type")]
    event_type: EventType,
    #[serde(default)]
    event_id: Option<EventId>,
    #[serde(default)]
    span_id: Option<SpanId>,
    #[serde(default)]
    parent_span_id: Option<SpanId>,
    #[serde(default)]
    at: Option<DateTime<Utc>>,
    #[serde(default)]
    payload: Option<Json>,
}

/// Checks a line and gives it an id if it has none; `None` for an empty line. The error states what is wrong with it.
///
/// The event stays as written: members keep their order and numbers their digits.
pub(super) fn prepare(bytes: &[u8], event_id: &str) -> Result<Option<String>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not valid UTF-8".to_owned())?.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let json = Json::parse(text).map_err(|flaw| match flaw {
        InvalidJson::Syntax => syntax(text),
        flaw => flaw.to_string(),
    })?;
    if !json.as_str().starts_with('{') {
        return Err(
            "an event is a JSON object such as {\"type\":\"log.info\",\"payload\":{\"message\":\"hello\"}}".to_owned()
        );
    }
    let members: Members = serde_json::from_str(json.as_str()).map_err(|error| without_place(&error.to_string()))?;
    let event = NewEvent {
        event_type: members.event_type,
        payload: members.payload.unwrap_or_else(Json::empty),
        span_id: members.span_id,
        parent_span_id: members.parent_span_id,
        event_id: members.event_id,
        at: members.at,
    };
    event.event_type.check_producer().map_err(|rule| format!("{}: {rule}", event.event_type))?;
    if event.event_type.is_ephemeral() {
        event.delta_text().map_err(|rule| rule.to_string())?;
    }
    if event.event_id.is_some() {
        return Ok(Some(json.as_str().to_owned()));
    }
    // A second member of the same name would be ambiguous.
    if json.member::<IgnoredAny>("event_id").is_some() {
        return Err("event_id is null; set it to a string or omit it".to_owned());
    }
    Ok(Some(format!(r#"{{"event_id":"{event_id}",{}"#, &json.as_str()[1..])))
}

/// Where the line stops being JSON.
fn syntax(text: &str) -> String {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => format!("not valid JSON: {} (column {})", without_place(&error.to_string()), error.column()),
        Ok(_) => InvalidJson::Syntax.to_string(),
    }
}

/// The parser's position counts its own lines, which would contradict the line number reported beside it.
fn without_place(message: &str) -> String {
    message.split(" at line ").next().unwrap_or(message).to_owned()
}
