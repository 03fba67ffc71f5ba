//! Emitting events, in one try or until they are stored.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

use super::{Client, Error, REQUEST_WAIT_MAX};
use crate::{domain::event::EventType, wire::events::EmitReply};

impl Client {
    /// Emits events in one request and one try: all of them are stored, or none.
    ///
    /// After [`Kind::Unreachable`](super::Kind::Unreachable) it is unknown which.
    pub async fn emit(&self, run_id: &str, events: &[Value]) -> Result<EmitReply, Error> {
        self.post_events(run_id, ndjson(events)?, REQUEST_WAIT_MAX).await
    }

    /// Emits events and retries while the server is busy or unreachable, for at most `patience`.
    ///
    /// Every event needs an `event_id`, which makes a retry harmless, or is a `.delta`, which is never stored;
    /// otherwise [`Kind::Unusable`](super::Kind::Unusable) and nothing is sent. A refusal is final. After `patience`,
    /// the error is the last one met.
    pub async fn emit_until_stored(
        &self,
        run_id: &str,
        events: &[Value],
        patience: Duration,
    ) -> Result<EmitReply, Error> {
        if let Some(at) = events.iter().position(|event| !is_repeatable(event)) {
            return Err(Error::unusable(format!("event {} has no event_id, so it cannot be retried", at + 1)));
        }
        self.emit_ndjson_until_stored(run_id, ndjson(events)?, patience).await
    }

    /// Like [`Self::emit_until_stored`] for lines of JSON that are sent verbatim; the caller vouches for their ids.
    pub async fn emit_ndjson_until_stored(
        &self,
        run_id: &str,
        lines: Bytes,
        patience: Duration,
    ) -> Result<EmitReply, Error> {
        self.insist(patience, |wait_max| self.post_events(run_id, lines.clone(), wait_max)).await
    }

    async fn post_events(&self, run_id: &str, lines: Bytes, wait_max: Duration) -> Result<EmitReply, Error> {
        let url = self.at(&["runs", run_id, "events"]);
        let request = self.http.post(url).header(CONTENT_TYPE, "application/x-ndjson").body(lines).timeout(wait_max);
        let response = self.answer(request).await?;
        let body = response.bytes().await.map_err(|error| Error::unreachable(self, &error))?;
        serde_json::from_slice(&body).map_err(|_| Error::unexpected("the server's acknowledgement is malformed"))
    }
}

fn is_repeatable(event: &Value) -> bool {
    let event_type = event["type"].as_str().and_then(|text| text.parse::<EventType>().ok());
    event["event_id"].is_string() || event_type.is_some_and(|event_type| event_type.is_ephemeral())
}

fn ndjson(events: &[Value]) -> Result<Bytes, Error> {
    let mut lines = Vec::new();
    for event in events {
        serde_json::to_writer(&mut lines, event).map_err(|error| Error::unusable(error.to_string()))?;
        lines.push(b'\n');
    }
    Ok(lines.into())
}
