//! Compressed responses: JSON.
//!
//! Streams are never compressed, because a compressor holds back what it is given; artifacts are sent as stored; the
//! UI's files are compressed when they are built (`ui`).

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Response, header},
};
use hyper::body::Body;
use tower_http::{
    CompressionLevel,
    compression::{CompressionLayer, Predicate},
};

use crate::domain::limits::{COMPRESSED_BYTES_MAX, COMPRESSED_BYTES_MIN};

/// Decides which responses are compressed.
#[derive(Clone, Copy)]
pub(super) struct Text;

impl Predicate for Text {
    fn should_compress<B: Body>(&self, response: &Response<B>) -> bool {
        // A reply that is sent in pieces has its size only in its headers.
        let declared = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
        let size = response.body().size_hint().exact().or_else(declared);
        size.is_some_and(|size| (COMPRESSED_BYTES_MIN..=COMPRESSED_BYTES_MAX).contains(&size))
            // Artifacts have ranges and are sent as stored, whatever their type.
            && !response.headers().contains_key(header::ACCEPT_RANGES)
            && is_text(response.headers())
    }
}

fn is_text(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let media_type = media_type.split(|byte| *byte == b';').next().unwrap_or_default();
    matches!(
        media_type,
        b"application/json" | b"application/javascript" | b"text/javascript" | b"text/css" | b"text/html"
    )
}

/// Gzip for clients that accept it.
pub(super) fn layer() -> CompressionLayer<Text> {
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(Text)
}

/// Whether a client accepts this content coding (RFC 9110, 12.5.3): it names it, and not with the weight 0.
pub(super) fn accepts(headers: &HeaderMap, coding: &str) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| {
        let (name, weight) = part.split_once(';').unwrap_or((part, ""));
        let weight = weight.trim().trim_start_matches(['q', 'Q']).trim_start_matches('=');
        name.trim().eq_ignore_ascii_case(coding) && weight.parse() != Ok(0.0_f32)
    })
}

/// Drops the preferences of a request that refuses the plain form. If it refused gzip too, the layer would answer 406
/// after carrying it out; RFC 9110, 12.5.3 allows the plain form instead.
pub(super) async fn forgive(mut request: Request) -> Request {
    let refuses = |value: &HeaderValue| value.to_str().is_ok_and(|codings| codings.split(',').any(refuses_plain));
    if request.headers().get_all(header::ACCEPT_ENCODING).iter().any(refuses) {
        request.headers_mut().remove(header::ACCEPT_ENCODING);
    }
    request
}

/// Whether this is `identity` or `*` with a weight of zero.
fn refuses_plain(coding: &str) -> bool {
    let mut parts = coding.split(';').map(str::trim);
    let is_plain = parts.next().is_some_and(|name| name == "*" || name.eq_ignore_ascii_case("identity"));
    let is_zero = |part: &str| {
        let weight = part.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("q"));
        weight.is_some_and(|(_, weight)| weight.parse::<f32>().is_ok_and(|weight| weight <= 0.0))
    };
    is_plain && parts.any(is_zero)
}
