//! Bodies that are read whole: within their bound, their sender's share of memory, and a time limit.

use std::{marker::PhantomData, pin::Pin, time::Duration};

use axum::{
    extract::{FromRequest, Request},
    http::{HeaderMap, header},
};
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor},
};
use tokio::time::Instant;

use super::{
    Server,
    credential::CredentialGuard,
    problem::{Code, Problem},
};
use crate::{
    domain::{
        limits::{
            BODY_BYTES_MAX, BODY_BYTES_PER_S_MIN, BODY_GRACE_MS, BODY_STEP_KIB, BODY_WAIT_MS_MAX,
            CHECKPOINT_BODY_BYTES_MAX,
        },
        misread::{in_words, missing},
        pace::Pace,
        principal::OwnerId,
    },
    quota::{Full, Quota, Share},
};

/// How long a rejected sender's body is still read, so that the sender gets the response.
const DRAIN: Duration = Duration::from_secs(2);
/// A sender that is silent this long has nothing left to send.
const DRAIN_SILENCE: Duration = Duration::from_millis(250);

/// The principal whose share a body uses; attached to the request once its sender is verified.
#[derive(Clone)]
pub(super) struct Payer(pub(super) OwnerId);

/// A body within its bound, and its kind. It contains no credential.
pub(super) struct Body<const BYTES_MAX: usize = BODY_BYTES_MAX> {
    pub(super) bytes: Bytes,
    pub(super) is_ndjson: bool,
    guard: CredentialGuard,
    /// Released when the request is done.
    room: Share,
}

impl<const BYTES_MAX: usize> Body<BYTES_MAX> {
    /// Its share, for data that was made from it and outlives it.
    pub(super) fn into_room(self) -> Share {
        self.room
    }
}

impl<const BYTES_MAX: usize> FromRequest<Server> for Body<BYTES_MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, server: &Server) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        if let Err(problem) = check_head(&head.headers, BYTES_MAX) {
            // A client that waits for `100 Continue` is not sending.
            if !head.headers.contains_key(header::EXPECT) {
                drain(std::pin::pin!(body.into_data_stream())).await;
            }
            return Err(problem);
        }
        let media_type = media_type(&head.headers);
        let is_ndjson = matches!(media_type.as_deref(), Some("application/x-ndjson" | "application/ndjson"));
        let is_json = media_type.as_deref().is_some_and(|t| t == "application/json" || t.ends_with("+json"));
        let guard = CredentialGuard::of(&head.headers, server);
        // A request without our credential comes from a webhook, one for each channel.
        let (bodies, payer) = match head.extensions.get::<Payer>() {
            Some(Payer(owner)) => (&server.bodies, owner.clone()),
            None => (&server.webhooks, OwnerId::trusted(head.uri.path())),
        };
        within_rate(server, &payer)?;
        let arriving = arrive(body, BYTES_MAX, bodies, &payer);
        let arrived = tokio::time::timeout(Duration::from_millis(BODY_WAIT_MS_MAX), arriving).await;
        let (bytes, room) = arrived.map_err(|_| too_slow())??;
        server.received.used(&payer, bytes.len());
        if !bytes.is_empty() && !is_ndjson && !is_json {
            return Err(Problem::new(Code::UnsupportedMediaType, "the body must be JSON").hint(
                "send the header: Content-Type: application/json (or application/x-ndjson for a list of events)",
            ));
        }
        guard.check_json(&bytes)?;
        Ok(Self { bytes, is_ndjson, guard, room })
    }
}

/// Rejects a body or an upload of a principal that has sent more than it may.
pub(super) fn within_rate(server: &Server, payer: &OwnerId) -> Result<(), Problem> {
    server
        .received
        .take(payer, 0)
        .map_err(|wait| Problem::new(Code::Busy, "the principal exceeds its limit of bytes per second").after(wait))
}

/// Rejects what can be rejected before the first byte.
fn check_head(headers: &HeaderMap, bytes_max: usize) -> Result<(), Problem> {
    if headers.get_all(header::CONTENT_ENCODING).iter().any(|encoding| encoding != "identity") {
        return Err(Problem::new(Code::UnsupportedMediaType, "a body must be sent without a Content-Encoding"));
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > bytes_max as u64) { Err(too_large(bytes_max)) } else { Ok(()) }
}

fn too_large(bytes_max: usize) -> Problem {
    Problem::new(Code::TooLarge, format!("a body may have at most {bytes_max} bytes"))
}

fn too_slow() -> Problem {
    Problem::new(Code::TooSlow, "the body did not arrive in time").hint("nothing was done; send it again")
}

/// Reads a body. Its share grows as the bytes arrive, so that a slow body, or one declared as large, blocks no other.
async fn arrive(
    body: axum::body::Body,
    bytes_max: usize,
    bodies: &Quota,
    payer: &OwnerId,
) -> Result<(Bytes, Share), Problem> {
    let busy = |full: Full| Problem::busy(full, "bodies");
    let (mut body, mut bytes) = (Limited::new(body, bytes_max), BytesMut::new());
    let mut room = bodies.try_take(payer, BODY_STEP_KIB).map_err(busy)?;
    let mut pace = Pace::new(BODY_GRACE_MS, BODY_BYTES_PER_S_MIN);
    loop {
        let asked = Instant::now();
        let frame = tokio::time::timeout(pace.patience(), body.frame()).await.map_err(|_| too_slow())?;
        let Some(frame) = frame else { return Ok((bytes.freeze(), room)) };
        let frame = frame.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => too_large(bytes_max),
            None => Problem::new(Code::InvalidRequest, "the body ended early"),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        pace.passed(asked.elapsed(), data.len());
        let missing = (bytes.len() + data.len()).div_ceil(1024).saturating_sub(room.amount());
        if missing > 0 {
            let steps = u32::try_from(missing).unwrap_or(u32::MAX).next_multiple_of(BODY_STEP_KIB);
            bodies.grow(&mut room, steps).map_err(busy)?;
        }
        bytes.extend_from_slice(&data);
    }
}

/// Keeps reading for a moment: a client that is still sending would not read the response.
pub(super) async fn drain<E>(mut bytes: Pin<&mut (impl Stream<Item = Result<Bytes, E>> + Send)>) {
    // Enough for the largest body of all, and one slightly over its bound.
    let mut left = CHECKPOINT_BODY_BYTES_MAX + BODY_BYTES_MAX;
    let reading = async {
        while let Ok(Some(Ok(chunk))) = tokio::time::timeout(DRAIN_SILENCE, bytes.next()).await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN, reading).await;
}

impl<const BYTES_MAX: usize> Body<BYTES_MAX> {
    /// Rejects values that contain a credential inside the encoding they were sent in.
    pub(super) fn check_values<'a>(&self, values: impl IntoIterator<Item = &'a [u8]>) -> Result<(), Problem> {
        values.into_iter().try_for_each(|value| self.guard.check(value))
    }

    /// Reads the whole body as one JSON object; an empty body reads as `{}`.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let bytes: &[u8] = if self.bytes.is_empty() { b"{}" } else { &self.bytes };
        let text =
            std::str::from_utf8(bytes).map_err(|_| Problem::new(Code::InvalidRequest, "the body is not UTF-8"))?;
        if !text.trim_start().starts_with('{') {
            return Err(Problem::new(Code::InvalidRequest, "the body must be a JSON object"));
        }
        serde_json::from_str(text).map_err(|error| misread::<T>(Code::InvalidRequest, text, &error))
    }
}

/// An array of which at most one element more than `MAX` is kept, so that a small body cannot take much memory.
#[derive(Debug)]
pub(super) struct AtMost<T, const MAX: usize>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Array<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Array<T, MAX> {
            type Value = AtMost<T, MAX>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut kept = Vec::new();
                while kept.len() <= MAX
                    && let Some(element) = seq.next_element()?
                {
                    kept.push(element);
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(AtMost(kept))
            }
        }

        deserializer.deserialize_seq(Array(PhantomData))
    }
}

/// What is wrong with a JSON text that is not a `T`: in which member, and where in the text.
pub(super) fn misread<T: DeserializeOwned>(code: Code, text: &str, error: &serde_json::Error) -> Problem {
    // Only after a failure: tracking the path of each value is slower.
    let again = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(text));
    let path = again.err().map(|error| error.path().to_string()).filter(|path| path != ".");
    let message = error.to_string();
    let (what, place) = message.rsplit_once(" at line ").unwrap_or((&message, ""));
    let missing = missing(what).map(str::to_owned);
    // The only bodies that are lists are lists of events.
    let path = path.map(|path| if path.starts_with('[') { format!("events{path}") } else { path });
    let field = match (path, missing) {
        (Some(path), Some(missing)) => Some(format!("{path}.{missing}")),
        (path, missing) => path.or(missing),
    };
    let place =
        if place.is_empty() { String::new() } else { format!(" (line {})", place.replace(" column", ", column")) };
    let problem = Problem::new(code, in_words(what) + &place);
    match field {
        Some(field) => problem.field(field),
        None => problem,
    }
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    /// Pieces of this many bytes, one per interval.
    fn dribble(bytes: usize, every: Duration, count: usize) -> axum::body::Body {
        let pieces = stream::iter(0..count).then(move |_| async move {
            tokio::time::sleep(every).await;
            Ok::<_, std::convert::Infallible>(Bytes::from(vec![b' '; bytes]))
        });
        axum::body::Body::from_stream(pieces)
    }

    async fn outcome(body: axum::body::Body) -> Result<usize, Code> {
        let bodies = Quota::new(1_024, 1_024);
        let arrived = arrive(body, BODY_BYTES_MAX, &bodies, &OwnerId::trusted("a")).await;
        arrived.map(|(bytes, _)| bytes.len()).map_err(|problem| problem.code())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_dribbles_is_given_up_after_its_grace() {
        let began = Instant::now();
        assert_eq!(outcome(dribble(1, Duration::from_secs(1), 60)).await, Err(Code::TooSlow));
        assert!(began.elapsed() < Duration::from_secs(11));
        assert_eq!(outcome(dribble(1_100, Duration::from_secs(1), 40)).await, Ok(44_000));
        assert_eq!(outcome(dribble(9, Duration::from_secs(1), 9)).await, Ok(81));
    }
}
