//! Spans for the ids of an endpoint.

use sha2::{Digest as _, Sha256};

use crate::domain::{
    id::SpanId,
    limits::{AGUI_EVENTS_MAX, AGUI_ID_CHARS_MAX},
};

/// The span for an endpoint's id: the id itself or, if it is empty, has control characters or is longer than
/// [`AGUI_ID_CHARS_MAX`], `id-` and the beginning of its SHA-256.
pub(super) fn fitted(id: &str) -> SpanId {
    let fits = !id.is_empty() && id.chars().count() <= AGUI_ID_CHARS_MAX && !id.chars().any(char::is_control);
    if fits {
        return SpanId::trusted(id);
    }
    let digest = hex::encode(Sha256::digest(id));
    SpanId::trusted(&format!("id-{}", &digest[..32]))
}

/// The span itself or, if it is taken, the first of `SPAN~2`, `SPAN~3` … that is not.
pub(super) fn unused(span: &SpanId, is_taken: impl Fn(&str) -> bool) -> SpanId {
    if !is_taken(span.as_str()) {
        return span.clone();
    }
    let numbered = |n: usize| format!("{span}~{n}");
    // There are no more spans than events.
    let free = (2..=AGUI_EVENTS_MAX).map(numbered).find(|span| !is_taken(span));
    free.map_or_else(|| span.clone(), |span| SpanId::trusted(&span))
}
