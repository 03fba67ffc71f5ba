//! Memory for slow readers: each principal's replies in memory have a bound, whichever route made them.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    body::{Body as ReplyBody, HttpBody as _},
    extract::{Request, State},
    http::{HeaderValue, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use serde::Serialize;

use super::{
    Server,
    problem::{Code, Problem},
};
use crate::{
    domain::{
        limits::{
            AGUI_JOIN_STEPS, AGUI_JOIN_WAIT_MS_MAX, READ_SHARE_WAIT_MS_MAX, REPLIES_OWN_STEPS_MAX, REPLY_FREE_BYTES,
            REPLY_PAGE_STEPS, STREAM_CHUNK_BYTES,
        },
        principal::OwnerId,
    },
    quota::{Full, Share},
};

/// The principal of a request, once verified. Attached to every request, for the reply.
#[derive(Clone, Default)]
pub(super) struct Asker(Arc<OnceLock<OwnerId>>);

impl Asker {
    pub(super) fn is(&self, owner: &OwnerId) {
        let _ = self.0.set(owner.clone());
    }
}

/// Counts a reply that is in memory whole until all of it is sent, and rejects it if its principal has too many.
pub(super) async fn count(State(server): State<Server>, mut request: Request, next: Next) -> Response {
    let asker = Asker::default();
    request.extensions_mut().insert(asker.clone());
    let response = next.run(request).await;
    let size = response.body().size_hint().exact().unwrap_or(0);
    let Some(owner) = asker.0.get().filter(|_| size > REPLY_FREE_BYTES) else { return response };
    let (mut head, body) = response.into_parts();
    let share = match head.extensions.remove::<Room>().and_then(|room| Arc::into_inner(room.0)) {
        Some(mut share) => {
            share.shrink(usize::try_from(steps(size)).unwrap_or(usize::MAX));
            share
        }
        None => match server.replies.try_take(owner, steps(size)) {
            Ok(share) => share,
            Err(full) => return Problem::busy(full, "large replies").into_response(),
        },
    };
    // It is one piece already, so nothing is copied.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return Problem::new(Code::Internal, "the reply could not be created").into_response();
    };
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    Response::from_parts(head, ReplyBody::from_stream(pieces(bytes, share)))
}

fn steps(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(REPLY_FREE_BYTES)).unwrap_or(u32::MAX)
}

/// Room that was reserved before a reply was made, on its way to [`count`].
#[derive(Clone)]
struct Room(Arc<Share>);

/// Reserves room for values of this many bytes and for the reply made of them, before they are read; waits briefly for
/// it. At most three quarters of a principal's room, so that its smaller replies do not keep a large one out.
pub(super) async fn room_for(server: &Server, owner: &OwnerId, bytes: u64) -> Result<Share, Problem> {
    let most = u32::try_from(REPLIES_OWN_STEPS_MAX / 4 * 3).unwrap_or(u32::MAX);
    let needed = steps(bytes.saturating_add(as_base64(bytes))).min(most);
    let wait = Duration::from_millis(READ_SHARE_WAIT_MS_MAX);
    let room = tokio::time::timeout(wait, server.replies.take(owner, needed)).await.ok().and_then(Result::ok);
    room.ok_or_else(|| Problem::busy(Full::Own, "large replies"))
}

/// A reply made of values of this many bytes in total, in one allocation, with the room reserved for them.
pub(super) async fn within(
    room: Share,
    bytes: u64,
    value: impl Serialize + Send + 'static,
) -> Result<Response, Problem> {
    // Off the event loop, which encoding tens of megabytes would block. The room moves along: the task continues after
    // a client disconnects.
    let encoded = tokio::task::spawn_blocking(move || {
        let mut json = Vec::with_capacity(usize::try_from(as_base64(bytes)).unwrap_or_default());
        serde_json::to_writer(&mut json, &value).map(|()| (json, room))
    });
    let (json, room) = encoded.await.map_err(std::io::Error::other).and_then(|json| Ok(json?)).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "reply not serialized");
        Problem::new(Code::Internal, "the reply could not be created")
    })?;
    let mut response = ([(header::CONTENT_TYPE, "application/json")], json).into_response();
    response.extensions_mut().insert(Room(Arc::new(room)));
    Ok(response)
}

/// Characters that these bytes take in a reply, as base64.
fn as_base64(bytes: u64) -> u64 {
    bytes.div_ceil(3).saturating_mul(4)
}

/// Reserves room for a reply that is made page by page while it is sent.
pub(super) fn paged(server: &Server, owner: &OwnerId) -> Result<Share, Problem> {
    server.replies.try_take(owner, REPLY_PAGE_STEPS).map_err(|full| Problem::busy(full, "long replies"))
}

/// Reserves room for what a joining reader of a conversation gets, before it is read; waits for it.
pub(super) async fn joining(server: &Server, owner: &OwnerId) -> Result<Share, Problem> {
    let wait = Duration::from_millis(AGUI_JOIN_WAIT_MS_MAX);
    let room = tokio::time::timeout(wait, server.replies.take(owner, AGUI_JOIN_STEPS)).await.ok().and_then(Result::ok);
    room.ok_or_else(|| Problem::busy(Full::Own, "large replies"))
}

/// Bytes in pieces. Their share is released with the last of them.
pub(super) fn pieces(mut bytes: Bytes, share: Share) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let next = move || {
        let piece = bytes.split_to(bytes.len().min(STREAM_CHUNK_BYTES));
        (!piece.is_empty()).then_some(Ok(piece))
    };
    futures::stream::iter(std::iter::from_fn(next)).map(move |piece| (piece, &share).0)
}
