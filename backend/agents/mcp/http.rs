//! [`Http`]: requests to a server that speaks streamable HTTP. The library handles sessions, reconnections and their
//! headers; this reads the messages ([`message`]), from bodies and from events.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{StreamExt as _, TryStream, TryStreamExt as _, stream};
use reqwest::{
    Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::{
        common::client_side_sse::BoxedSseResponse,
        streamable_http_client::{SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse},
    },
};
use serde_json::Value;
use sse_stream::SseByteStream;

use super::message;
use crate::domain::{lenient, limits::MCP_MESSAGE_BYTES_MAX};

const SESSION_ID: &str = "mcp-session-id";
const EVENT_STREAM: &str = "text/event-stream";
/// Headers that belong to the protocol.
const RESERVED: [&str; 3] = ["accept", SESSION_ID, "last-event-id"];

/// The library's type of events.
type Event = <BoxedSseResponse as TryStream>::Ok;
type Failed = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

#[derive(Clone)]
pub(super) struct Http(pub(super) reqwest::Client);

/// Refuses headers that the protocol sets itself.
pub(super) fn check_header(name: &HeaderName) -> Result<(), String> {
    if RESERVED.contains(&name.as_str()) { Err(format!("{name} is a header of the protocol")) } else { Ok(()) }
}

impl StreamableHttpClient for Http {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let mut request = self.0.post(uri.as_ref()).header(ACCEPT, format!("{EVENT_STREAM}, application/json"));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(session) = &session {
            request = request.header(SESSION_ID, session.as_ref());
        }
        let response = request.json(&message).send().await?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let asked = match &message {
            ClientJsonRpcMessage::Request(request) => request.id.clone().into_json_value(),
            // Only requests have answers.
            _ if status.is_success() => return Ok(StreamableHttpPostResponse::Accepted),
            _ => return Err(StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status}").into())),
        };
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let session = header(SESSION_ID);
        let is_stream = header(CONTENT_TYPE.as_str()).is_some_and(|media_type| media_type.starts_with(EVENT_STREAM));
        if status.is_success() && is_stream {
            return Ok(StreamableHttpPostResponse::Sse(events(response, asked), session));
        }
        Ok(StreamableHttpPostResponse::Json(answer(response, &asked).await?, session))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failed> {
        self.0.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, Failed> {
        let max = MCP_MESSAGE_BYTES_MAX;
        let events = self.0.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, max).await?;
        Ok(events.map_ok(|event| stream::iter(readable(event, None).into_iter().map(Ok))).try_flatten().boxed())
    }
}

/// The answer in a body. A body that cannot be read becomes an error, because no other answer will arrive.
async fn answer(response: Response, asked: &Value) -> Result<ServerJsonRpcMessage, Failed> {
    let status = response.status();
    let (mut body, mut chunks) = (Vec::new(), response.bytes_stream());
    while let Some(chunk) = chunks.try_next().await? {
        body.extend_from_slice(&chunk);
        if body.len() > MCP_MESSAGE_BYTES_MAX {
            return Ok(serde_json::from_value(too_large(asked))?);
        }
    }
    let answer = message::read(&body, Some(asked)).into_iter().find(message::is_answer);
    let answer = answer.map(|mut answer| {
        answer["id"] = asked.clone();
        answer
    });
    let unread = || {
        let error = lenient::value(&body).err();
        let why = error.map_or_else(|| "it is not a message of MCP".to_owned(), |error| error.to_string());
        format!("its answer cannot be read: {why}")
    };
    let answer = answer.unwrap_or_else(|| {
        message::failure(asked, &if status.is_success() { unread() } else { format!("it answered HTTP {status}") })
    });
    Ok(serde_json::from_value(answer)?)
}

/// The events of a response, up to one that is too large.
fn events(response: Response, asked: Value) -> BoxedSseResponse {
    // The parser's blocks are unbounded, so bytes are counted before it; each block it returns resets the count.
    let pending = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&pending);
    let bytes = response.bytes_stream().map_err(io::Error::other).and_then(move |chunk| {
        let fits = counter.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len() <= MCP_MESSAGE_BYTES_MAX;
        std::future::ready(if fits { Ok(chunk) } else { Err(io::ErrorKind::FileTooLarge.into()) })
    });
    let blocks = SseByteStream::new(bytes.boxed()).inspect(move |_| pending.store(0, Ordering::Relaxed));
    let events = blocks.flat_map(move |block| {
        stream::iter(match block {
            Ok(block) => {
                let mut event = Event::default();
                (event.event, event.data, event.id, event.retry) = (block.event, block.data, block.id, block.retry);
                readable(event, Some(&asked)).into_iter().map(Ok).collect()
            }
            Err(sse_stream::Error::Body(error)) if error.downcast_ref::<io::Error>().is_none_or(is_broken) => {
                // The library resumes the stream if it can.
                vec![Err(SseError::Body(error))]
            }
            Err(sse_stream::Error::Body(_)) => vec![Ok(event_of(&too_large(&asked)))],
            Err(error) => vec![Ok(event_of(&message::failure(&asked, &format!("its answer cannot be read: {error}"))))],
        })
    });
    events.boxed()
}

fn is_broken(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::FileTooLarge
}

fn event_of(message: &Value) -> Event {
    Event::default().data(message.to_string())
}

fn too_large(asked: &Value) -> Value {
    message::failure(asked, &format!("its answer is larger than {MCP_MESSAGE_BYTES_MAX} bytes"))
}

/// Splits an event into one for each message in its data. The last one keeps the id, from which the library resumes.
fn readable(mut event: Event, asked: Option<&Value>) -> Vec<Event> {
    let Some(data) = event.data.take() else { return vec![event] };
    let mut messages = message::read(data.as_bytes(), asked);
    event.data = messages.pop().map(|message| message.to_string());
    let named = |message: Value| {
        let mut named = event_of(&message);
        named.event.clone_from(&event.event);
        named
    };
    let mut events: Vec<Event> = messages.into_iter().map(named).collect();
    events.push(event);
    events
}
