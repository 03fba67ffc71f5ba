//! [`Follow`]: one live stream, across as many connections as necessary.
//!
//! The parser (`sse-stream`) yields raw blocks: comments are dropped, "no id" and "empty id" are distinct, a `retry:`
//! without data is a block of its own, and an incomplete block never appears. The rest is done here: the standard's
//! rule for ids, the bound on a block's size, the silence of a dead peer, and reconnecting.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use reqwest::{
    Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde::Deserialize;
use sse_stream::{Sse, SseByteStream};

use super::{Client, Error, error::describe, pace::Backoff};
use crate::domain::cursor::RunCursor;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Most bytes without a complete frame. The largest frame (an open message, every character escaped) is far smaller.
const FRAME_BYTES_MAX: usize = 32 * 1024 * 1024;

/// One frame of the stream as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The frame's own id: a seq, or an opaque cursor in a feed. `None` for ephemeral and control frames.
    pub id: Option<String>,
    /// The event's type, or `stream.…` for a control frame.
    pub event: String,
    /// One line of JSON.
    pub data: String,
}

/// What a follower reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Frame(Frame),
    /// A connection is open; reported again after each [`Notice::Lost`].
    Connected,
    /// The connection is lost, but no event: the next connection resumes where this one ended.
    Lost {
        reason: String,
        retry_in: Duration,
    },
}

/// A stream that reconnects and resumes automatically.
pub struct Follow {
    client: Client,
    url: Result<Url, Error>,
    /// Sent as `Last-Event-ID`.
    cursor: Option<String>,
    /// The highest seq yielded. Separate from the cursor, which an empty id clears.
    seen: Option<i64>,
    /// The server's last `retry:`.
    retry: Option<Duration>,
    /// The last `stream.draining`, for the next wait only.
    draining: Option<Draining>,
    backoff: Backoff,
    phase: Phase,
}

enum Phase {
    Connecting(BoxFuture<'static, Result<Response, Error>>),
    Open(BoxStream<'static, Result<Sse, sse_stream::Error>>),
    Resting(BoxFuture<'static, ()>),
    Ended,
}

impl Follow {
    pub(super) fn new(client: Client, url: Result<Url, Error>, after: Option<String>) -> Self {
        let mut follow = Self {
            client,
            url,
            seen: after.as_deref().and_then(number),
            cursor: after,
            retry: None,
            draining: None,
            backoff: Backoff::default(),
            phase: Phase::Ended,
        };
        follow.phase = follow.connect();
        follow
    }

    /// The next notice. `None` once the run's log has ended: after `stream.end`, or when the server answers 204.
    ///
    /// An error is final, `None` follows it. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<Notice, Error>> {
        loop {
            let notice = match &mut self.phase {
                Phase::Ended => return None,
                Phase::Resting(rest) => {
                    rest.await;
                    self.phase = self.connect();
                    None
                }
                Phase::Connecting(answer) => {
                    let answer = answer.await;
                    self.answered(answer)
                }
                Phase::Open(blocks) => match blocks.next().await {
                    Some(Ok(block)) => self.received(block).map(|frame| Ok(Notice::Frame(frame))),
                    ended => Some(Ok(self.lost(why(ended.and_then(Result::err)), None))),
                },
            };
            if notice.is_some() {
                return notice;
            }
        }
    }

    /// The id of the last frame that had one: pass it to [`Client::follow`] to resume in another process.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    fn connect(&self) -> Phase {
        let (client, url, cursor) = (self.client.clone(), self.url.clone(), self.cursor.clone());
        Phase::Connecting(Box::pin(async move {
            let mut request = client.http.get(resumed(url?, cursor.is_some()));
            request = request.header(ACCEPT, HeaderValue::from_static("text/event-stream"));
            if let Some(cursor) = cursor {
                let value = HeaderValue::from_bytes(cursor.as_bytes());
                let value =
                    value.map_err(|_| Error::unusable("the cursor contains characters not allowed in a header"))?;
                request = request.header(LAST_EVENT_ID, value);
            }
            client.answer(request).await
        }))
    }

    fn answered(&mut self, answer: Result<Response, Error>) -> Option<Result<Notice, Error>> {
        self.phase = Phase::Ended;
        match answer {
            Ok(response) if response.status() == StatusCode::NO_CONTENT => None,
            Ok(response) if is_event_stream(&response) => {
                self.phase = Phase::Open(blocks(response));
                Some(Ok(Notice::Connected))
            }
            Ok(_) => Some(Err(Error::unexpected("the server's answer is not an event stream"))),
            Err(error) if error.kind.is_retryable() => {
                Some(Ok(self.lost(error.detail.into_string(), error.retry_after)))
            }
            Err(error) => Some(Err(error)),
        }
    }

    fn lost(&mut self, reason: String, retry_after: Option<Duration>) -> Notice {
        let draining = self.draining.take();
        let reason = match draining.as_ref().map(|draining| draining.reason.as_deref()) {
            Some(Some("busy" | "busy_own")) => "the server has no room for another stream".to_owned(),
            Some(Some("reset")) => "the server's database went back to an earlier state".to_owned(),
            Some(_) => "the server is shutting down".to_owned(),
            None => reason,
        };
        let draining = draining.map(|draining| Duration::from_millis(draining.retry_ms));
        let requested = [retry_after, draining, self.retry].into_iter().flatten().max();
        let retry_in = self.backoff.next(requested, self.client.pace.jitter());
        self.phase = Phase::Resting(self.client.pace.wait(retry_in));
        Notice::Lost { reason, retry_in }
    }

    fn received(&mut self, block: Sse) -> Option<Frame> {
        if let Some(retry) = block.retry {
            self.retry = Some(Duration::from_millis(retry));
        }
        if let Some(id) = &block.id {
            if let Some(seq) = number(id) {
                if self.seen.is_some_and(|seen| seq <= seen) {
                    return None;
                }
                self.seen = Some(seq);
            }
            // By the standard, an empty id clears the cursor.
            self.cursor = (!id.is_empty()).then(|| id.clone());
        }
        let data = block.data?;
        self.backoff.reset();
        let event = block.event.filter(|event| !event.is_empty()).unwrap_or_else(|| "message".to_owned());
        match event.as_str() {
            "stream.end" => self.phase = Phase::Ended,
            "stream.draining" => self.draining = serde_json::from_str(&data).ok(),
            "stream.reset" => {
                let reset: Option<Draining> = serde_json::from_str(&data).ok();
                self.draining = reset.map(|reset| Draining { reason: Some("reset".to_owned()), ..reset });
            }
            _ => {}
        }
        Some(Frame { id: block.id, event, data })
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").field("client", &self.client).field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

fn number(id: &str) -> Option<i64> {
    id.parse::<RunCursor>().ok().map(|cursor| cursor.seq.get())
}

/// `tail` applies only to the first connection; the next one resumes at the cursor.
fn resumed(mut url: Url, has_cursor: bool) -> Url {
    if has_cursor && url.query_pairs().any(|(name, _)| name == "tail") {
        let kept: Vec<(String, String)> = url.query_pairs().into_owned().filter(|(name, _)| name != "tail").collect();
        url.set_query(None);
        if !kept.is_empty() {
            url.query_pairs_mut().extend_pairs(kept);
        }
    }
    url
}

fn is_event_stream(response: &Response) -> bool {
    let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    response.status() == StatusCode::OK
        && media_type.split(';').next().is_some_and(|word| word.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// The server's `stream.draining` frame.
#[derive(Deserialize)]
struct Draining {
    retry_ms: u64,
    reason: Option<String>,
}

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error("{0}")]
    Transport(String),
    #[error("timed out: no data and no ping")]
    Silence,
    #[error("a frame is larger than {FRAME_BYTES_MAX} bytes")]
    Oversize,
}

/// Without an error the body ended cleanly, which an unfinished stream never should.
fn why(error: Option<sse_stream::Error>) -> String {
    match error {
        None => "the connection was closed before the stream's end".to_owned(),
        Some(sse_stream::Error::Body(cut)) => cut.to_string(),
        Some(error) => error.to_string(),
    }
}

fn blocks(response: Response) -> BoxStream<'static, Result<Sse, sse_stream::Error>> {
    // The parser does not bound its blocks, so bytes are counted before it; each block out resets the count.
    let pending = Arc::new(AtomicUsize::new(0));
    let arrived = Arc::clone(&pending);
    let bytes = response.bytes_stream().map(move |chunk| match chunk {
        Ok(chunk) if arrived.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len() > FRAME_BYTES_MAX => {
            Err(Cut::Oversize)
        }
        Ok(chunk) => Ok(chunk),
        Err(error) if error.is_timeout() => Err(Cut::Silence),
        Err(error) => Err(Cut::Transport(describe(&error))),
    });
    SseByteStream::new(bytes.boxed()).inspect(move |_| pending.store(0, Ordering::Relaxed)).boxed()
}
