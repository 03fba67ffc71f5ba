//! What waits for slow readers: each principal's replies in memory have a bound, whichever route made them.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
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

use super::{
    Server,
    problem::{Code, Problem},
};
use crate::{
    domain::{
        limits::{REPLY_FREE_BYTES, REPLY_PAGE_STEPS, STREAM_CHUNK_BYTES},
        principal::OwnerId,
    },
    quota::Share,
};

/// Whose request it is, once that is verified. Left on every request, for the reply.
#[derive(Clone, Default)]
pub(super) struct Asker(Arc<OnceLock<OwnerId>>);

impl Asker {
    pub(super) fn is(&self, owner: &OwnerId) {
        let _ = self.0.set(owner.clone());
    }
}

/// Counts a reply that is in memory whole until the last of it is sent, and refuses it when its principal has too many.
pub(super) async fn count(State(server): State<Server>, mut request: Request, next: Next) -> Response {
    let asker = Asker::default();
    request.extensions_mut().insert(asker.clone());
    let response = next.run(request).await;
    let size = response.body().size_hint().exact().unwrap_or(0);
    let Some(owner) = asker.0.get().filter(|_| size > REPLY_FREE_BYTES) else { return response };
    let steps = u32::try_from(size.div_ceil(REPLY_FREE_BYTES)).unwrap_or(u32::MAX);
    let share = match server.replies.try_take(owner, steps) {
        Ok(share) => share,
        Err(full) => return Problem::busy(full, "large replies").into_response(),
    };
    let (mut head, body) = response.into_parts();
    // It is one piece already, so nothing is copied.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return Problem::new(Code::Internal, "the reply could not be created").into_response();
    };
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    Response::from_parts(head, ReplyBody::from_stream(pieces(bytes, share)))
}

/// Room for a reply that is made page by page while it is sent.
pub(super) fn paged(server: &Server, owner: &OwnerId) -> Result<Share, Problem> {
    server.replies.try_take(owner, REPLY_PAGE_STEPS).map_err(|full| Problem::busy(full, "long replies"))
}

/// Bytes in pieces. What they take is given back with the last of them.
pub(super) fn pieces(mut bytes: Bytes, share: Share) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let next = move || {
        let piece = bytes.split_to(bytes.len().min(STREAM_CHUNK_BYTES));
        (!piece.is_empty()).then_some(Ok(piece))
    };
    futures::stream::iter(std::iter::from_fn(next)).map(move |piece| (piece, &share).0)
}
