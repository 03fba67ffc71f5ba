//! Requests that change nothing, whose answers show what a proxy in between does to traffic.

use std::time::Duration;

use reqwest::{
    Response, StatusCode,
    header::{
        ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
    },
};
use tokio::time::Instant;

use super::{Client, Error, Kind};
use crate::domain::limits::BODY_BYTES_MAX;

/// A valid and empty stream: everything the caller owns, from now on.
const STREAM: &str = "/api/stream/runs?tail=0";
/// Sent by the server once the past has been replayed.
const CAUGHT_UP: &[u8] = b"stream.caught_up";
/// The end of every block in a stream, including the ping of an idle server.
const END: &[u8] = b"\n\n";
/// A run that cannot exist: its id has no time.
const NO_RUN: &str = "00000000-0000-7000-8000-000000000000";

/// How a stream arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamProbe {
    /// As it should: the times of its first frame and of the next frame or ping.
    Live { first: Duration, next: Duration },
    /// A proxy compresses it.
    Compressed(String),
    /// No first frame arrived in time.
    HeldBack,
    /// The first frame arrived, and after it not even a ping.
    Stalled { first: Duration },
    /// It was cut after this time.
    Cut(Duration),
}

/// How much of a request reaches the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    Whole,
    /// The server did not see the part in question.
    Stripped,
    /// Something else answered, with this status.
    Refused(u16),
}

impl Client {
    /// Listens to a stream until the first frame or ping after the replay, accepting compression as a browser does.
    ///
    /// `first_max` is how long the replay may take, `next_max` the next frame or ping.
    pub async fn probe_stream(&self, first_max: Duration, next_max: Duration) -> Result<StreamProbe, Error> {
        let began = Instant::now();
        let request = self.http.get(self.join(STREAM)?);
        let request = request.header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let request = request.header(ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate, br"));
        let Ok(answer) = tokio::time::timeout(first_max, self.answer(request)).await else {
            return Ok(StreamProbe::HeldBack);
        };
        let response = answer?;
        if let Some(encoding) = named(&response, &CONTENT_ENCODING).filter(|encoding| encoding != "identity") {
            return Ok(StreamProbe::Compressed(encoding));
        }
        if !named(&response, &CONTENT_TYPE).is_some_and(|media_type| media_type.starts_with("text/event-stream")) {
            return Err(Error::unexpected("the server's answer is not an event stream"));
        }
        let mut listener = Listener { response, heard: Vec::new() };
        let frame = async { listener.hear(CAUGHT_UP).await && listener.hear(END).await };
        match tokio::time::timeout(first_max.saturating_sub(began.elapsed()), frame).await {
            Err(_) => return Ok(StreamProbe::HeldBack),
            Ok(false) => return Ok(StreamProbe::Cut(began.elapsed())),
            Ok(true) => {}
        }
        let first = began.elapsed();
        Ok(match tokio::time::timeout(next_max, listener.hear(END)).await {
            Err(_) => StreamProbe::Stalled { first },
            Ok(false) => StreamProbe::Cut(began.elapsed()),
            Ok(true) => StreamProbe::Live { first, next: began.elapsed() },
        })
    }

    /// Whether `Last-Event-ID` arrives: the server refuses an invalid one.
    pub async fn probe_cursor(&self) -> Result<Arrival, Error> {
        let request = self.http.get(self.join(STREAM)?).header("last-event-id", "not a cursor");
        match self.answer(request).await {
            Ok(_) => Ok(Arrival::Stripped),
            Err(error) if error.code.as_deref() == Some("invalid_cursor") => Ok(Arrival::Whole),
            Err(error) => Err(error),
        }
    }

    /// Whether a body of the largest emit arrives; it is sent to a run that cannot exist.
    pub async fn probe_body(&self) -> Result<Arrival, Error> {
        let body = format!("[]{}", " ".repeat(BODY_BYTES_MAX - 2));
        let request = self.http.post(self.at(&["runs", NO_RUN, "events"])).header(CONTENT_TYPE, "application/json");
        match self.answer(request.body(body)).await {
            Err(error) if error.code.as_deref() == Some("not_found") => Ok(Arrival::Whole),
            Err(Error { status: Some(status), code: None, .. }) => Ok(Arrival::Refused(status)),
            Err(error) if error.kind == Kind::Unreachable => Ok(Arrival::Stripped),
            Err(error) => Err(error),
            Ok(_) => Err(Error::unexpected("the server accepted events for a run that cannot exist")),
        }
    }

    /// Whether a WebSocket could be opened here; it asks for an unknown subprotocol, so that none is opened.
    pub async fn probe_upgrade(&self) -> Result<Arrival, Error> {
        let request = self.http.get(self.at(&["runners", "connect"]));
        let request = request
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, "cnVucmVlbC1kb2N0b3ItMQ==")
            .header(SEC_WEBSOCKET_PROTOCOL, "runreel.doctor");
        match self.answer(request).await {
            Err(error) if error.code.as_deref() == Some("upgrade_required") => Ok(Arrival::Stripped),
            Err(error) if error.field.as_deref() == Some("Sec-WebSocket-Protocol") => Ok(Arrival::Whole),
            Err(Error { status: Some(status), code: None, .. }) => Ok(Arrival::Refused(status)),
            Err(error) => Err(error),
            Ok(response) => Ok(Arrival::Refused(StatusCode::as_u16(&response.status()))),
        }
    }
}

/// The bytes of a stream, searched for one pattern after the other.
struct Listener {
    response: Response,
    heard: Vec<u8>,
}

impl Listener {
    /// Waits for a pattern and drops everything up to it; `false` if the stream has ended.
    async fn hear(&mut self, wanted: &[u8]) -> bool {
        loop {
            if let Some(at) = memchr::memmem::find(&self.heard, wanted) {
                self.heard.drain(..at + wanted.len());
                return true;
            }
            // Only what may be the beginning of the pattern is kept.
            self.heard.drain(..self.heard.len().saturating_sub(wanted.len()));
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.heard.extend_from_slice(&chunk),
                Ok(None) | Err(_) => return false,
            }
        }
    }
}

fn named(response: &Response, name: &reqwest::header::HeaderName) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.trim().to_ascii_lowercase())
}
