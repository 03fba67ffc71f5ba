//! Responses that are streams: how they are written, and when they end.

use axum::{
    body::Body as ReplyBody,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;

use super::{Server, extract::Caller, lasting::Lasting};
use crate::{
    domain::limits::STREAM_FREE_BYTES, faces::Encoder, paced::Outflow, quota::Share, timeline::follow::Follower,
};

/// The response of a stream.
pub(super) fn event_stream(body: ReplyBody) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The source of a response: one follower in a protocol, or many.
pub(super) trait Source: Send {
    /// The first bytes of the response; they may be empty.
    fn opening(&self) -> Bytes;

    /// Keep-alive bytes for an idle connection.
    fn ping(&self) -> Bytes;

    /// The next chunk; `None` if there is nothing to write for now.
    fn chunk(&mut self) -> Option<Bytes>;

    /// Whether it is over although there could be more.
    fn is_over(&self) -> bool;

    /// Waits for more to write; `false` if nothing more will come. Cancellation-safe.
    fn advance(&mut self) -> impl Future<Output = bool> + Send;
}

/// One follower in a protocol.
struct One<E> {
    follower: Follower,
    encoder: E,
}

impl<E: Encoder> Source for One<E> {
    fn opening(&self) -> Bytes {
        self.encoder.opening()
    }

    fn ping(&self) -> Bytes {
        self.encoder.ping()
    }

    fn chunk(&mut self) -> Option<Bytes> {
        self.encoder.chunk()
    }

    fn is_over(&self) -> bool {
        self.encoder.is_over()
    }

    async fn advance(&mut self) -> bool {
        let Some(items) = self.follower.next().await else { return false };
        self.encoder.take(items);
        true
    }
}

/// Turns a follower into a response in a protocol, which ends when the follower, the protocol, the credential or the
/// server does.
pub(super) fn stream(
    server: &Server,
    caller: &Caller,
    connection: (Share, Outflow),
    follower: Follower,
    encoder: impl Encoder + 'static,
) -> Response {
    write(server, caller, connection, One { follower, encoder })
}

/// The response that is written from a source, which ends when the source, the credential or the server does.
pub(super) fn write(
    server: &Server,
    caller: &Caller,
    (place, outflow): (Share, Outflow),
    mut source: impl Source + 'static,
) -> Response {
    let lasting = Lasting::of(server, caller);
    let open = metrics::gauge!("runreel_streams_open");
    open.increment(1.0);
    let close = OnDrop(move || open.decrement(1.0));
    let chunks = async_stream::stream! {
        let (_place, _close, mut unflushed) = (place, close, 0);
        yield Ok::<Bytes, std::convert::Infallible>(source.opening());
        loop {
            if lasting.is_over() {
                return;
            }
            if let Some(chunk) = source.chunk() {
                unflushed += chunk.len();
                yield Ok(chunk);
                if unflushed > STREAM_FREE_BYTES {
                    // Lets hyper write what it has before it asks for more.
                    tokio::task::yield_now().await;
                    unflushed = 0;
                }
                continue;
            }
            if source.is_over() {
                return;
            }
            // Nothing more is taken for a peer that does not read.
            let next = async {
                outflow.clear().await;
                source.advance().await
            };
            tokio::select! {
                has_more = next => if !has_more {
                    return;
                },
                () = lasting.pause() => {
                    if !lasting.is_over() {
                        yield Ok(source.ping());
                    }
                }
            }
        }
    };
    event_stream(ReplyBody::from_stream(chunks))
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
