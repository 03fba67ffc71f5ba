//! Downloads: the bytes of an artifact, whole or a part of them (RFC 9110 §13, §14).

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
    response::IntoResponse as _,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use utoipa_axum::router::OpenApiRouter;

use crate::{
    domain::{artifact::ArtifactName, principal::Scope},
    http::{
        Server,
        extract::{ArtifactPath, Caller},
        handler::routes,
        problem::{Code, Problem},
    },
    store::artifacts::Artifact,
};

/// Characters to encode: all but those that RFC 8187 allows in a value.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(download))
}

/// Download an artifact, or with `Range` a part of it.
#[utoipa::path(get, operation_id = "download_artifact", path = "/api/artifacts/{artifact_id}", tag = "artifacts", params(
    ("artifact_id" = uuid::Uuid, Path), ("Range" = Option<String>, Header, description = "One range: `bytes=0-99`, `bytes=100-`, `bytes=-100`"),
    ("If-None-Match" = Option<String>, Header), ("If-Range" = Option<String>, Header)),
    responses((status = 200, description = "The bytes", content_type = "application/octet-stream"), (status = 206, description = "The requested range"),
    (status = 304, description = "Not modified: the `ETag` is the content's SHA-256"), (status = 404, body = Problem, description = "Not found, or of another owner"),
    (status = 416, body = Problem, description = "`range_not_satisfiable`")))]
async fn download(
    State(server): State<Server>,
    caller: Caller,
    ArtifactPath(id): ArtifactPath,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    // The scope first: afterwards an artifact of another run is answered like an absent one.
    let owner = caller.needs(Scope::Read)?.owner();
    let artifact = server.timeline.store().artifacts().get(owner, id).await?.ok_or_else(Problem::not_found)?;
    caller.needs_run(&server, Scope::Read, artifact.run_id).await?;
    let etag = format!("\"{}\"", artifact.sha256);
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if text(header::IF_NONE_MATCH).is_some_and(|tags| names(tags, &etag)) {
        return Ok(described(&artifact, &etag, StatusCode::NOT_MODIFIED, Body::empty()));
    }
    // A part only if the client has the other parts of the same content.
    let asked = text(header::RANGE).filter(|_| text(header::IF_RANGE).is_none_or(|tag| tag.trim() == etag));
    let size = artifact.size;
    let (status, from, length) = match asked.map_or(Part::Whole, |range| part(range, size)) {
        Part::Whole => (StatusCode::OK, 0, size),
        Part::Of(from, last) => (StatusCode::PARTIAL_CONTENT, from, last - from + 1),
        Part::Beyond => {
            let detail = format!("the artifact has {size} bytes, and the range is outside of them");
            let mut refusal = Problem::new(Code::RangeNotSatisfiable, detail).into_response();
            set(&mut refusal, header::CONTENT_RANGE, &format!("bytes */{size}"));
            return Ok(refusal);
        }
    };
    let bytes = server.timeline.artifacts().read(owner, &artifact, from, length).await?;
    let mut response = described(&artifact, &etag, status, Body::from_stream(bytes));
    set(&mut response, header::CONTENT_TYPE, artifact.media_type.as_str());
    set(&mut response, header::CONTENT_LENGTH, &length.to_string());
    if status == StatusCode::PARTIAL_CONTENT {
        set(&mut response, header::CONTENT_RANGE, &format!("bytes {from}-{}/{size}", from + length - 1));
    }
    metrics::counter!("runreel_artifacts_read_total").increment(1);
    Ok(response)
}

/// The headers of every response about an artifact: which content it is, and that no browser may render it.
fn described(artifact: &Artifact, etag: &str, status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    set(&mut response, header::ETAG, etag);
    set(&mut response, header::ACCEPT_RANGES, "bytes");
    set(&mut response, header::CACHE_CONTROL, "private, no-cache");
    set(&mut response, header::CONTENT_DISPOSITION, &disposition(&artifact.name));
    set(&mut response, header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'");
    response
}

fn set(response: &mut Response<Body>, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// RFC 6266: the name in plain ASCII for old clients, and in full (RFC 8187).
fn disposition(name: &ArtifactName) -> String {
    let is_plain = |c: char| (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\' | '%');
    let plain: String = name.as_str().chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", utf8_percent_encode(name.as_str(), PLAIN))
}

/// Whether a list of entity tags contains this one; weak tags match too, as RFC 9110 has it for `If-None-Match`.
fn names(tags: &str, etag: &str) -> bool {
    tags.split(',').map(str::trim).any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag)
}

/// What a range requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Everything: also for anything but a single range of bytes, as RFC 9110 §14.2 allows.
    Whole,
    /// From the first to the last byte, inclusive.
    Of(u64, u64),
    /// Outside of the content.
    Beyond,
}

fn part(range: &str, size: u64) -> Part {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number with more digits than a size can have is still a number.
        digits.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    let Some((unit, spec)) = range.split_once('=') else { return Part::Whole };
    let Some((from, to)) = spec.trim().split_once('-') else { return Part::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Part::Whole;
    }
    match (from, to, number(from), number(to)) {
        ("", _, _, Some(0)) => Part::Beyond,
        ("", _, _, Some(_)) if size == 0 => Part::Beyond,
        ("", _, _, Some(last)) => Part::Of(size.saturating_sub(last), size - 1),
        (_, _, Some(from), Some(to)) if to < from => Part::Whole,
        (_, _, Some(from), Some(_)) if from >= size => Part::Beyond,
        (_, "", Some(from), _) if from >= size => Part::Beyond,
        (_, _, Some(from), Some(to)) => Part::Of(from, to.min(size - 1)),
        (_, "", Some(from), _) => Part::Of(from, size - 1),
        _ => Part::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_the_standard_says() {
        for (range, size, expected) in [
            ("bytes=0-0", 10, Part::Of(0, 0)),
            ("bytes=0-9", 10, Part::Of(0, 9)),
            ("bytes=3-", 10, Part::Of(3, 9)),
            ("bytes=-3", 10, Part::Of(7, 9)),
            ("bytes=-30", 10, Part::Of(0, 9)),
            ("bytes=5-999999999999999999999999", 10, Part::Of(5, 9)),
            ("Bytes = 1-2", 10, Part::Of(1, 2)),
            ("bytes=10-", 10, Part::Beyond),
            ("bytes=99999999999999999999-", 10, Part::Beyond),
            ("bytes=-0", 10, Part::Beyond),
            ("bytes=0-", 0, Part::Beyond),
            ("bytes=-1", 0, Part::Beyond),
            ("bytes=5-4", 10, Part::Whole),
            ("bytes=0-1,3-4", 10, Part::Whole),
            ("bytes=-", 10, Part::Whole),
            ("bytes=a-b", 10, Part::Whole),
            ("bytes=+1-2", 10, Part::Whole),
            ("bytes=1", 10, Part::Whole),
            ("lines=0-1", 10, Part::Whole),
            ("", 10, Part::Whole),
        ] {
            assert_eq!(part(range, size), expected, "{range} of {size}");
        }
    }

    #[test]
    fn a_name_stands_in_a_header_in_two_forms() {
        let of = |name: &str| disposition(&name.parse().unwrap());
        assert_eq!(of("report.txt"), "attachment; filename=\"report.txt\"; filename*=UTF-8''report.txt");
        assert_eq!(of("a \"b\".txt"), "attachment; filename=\"a _b_.txt\"; filename*=UTF-8''a%20%22b%22.txt");
        assert_eq!(of("é;=%"), "attachment; filename=\"_;=_\"; filename*=UTF-8''%C3%A9%3B%3D%25");
    }

    #[test]
    fn a_tag_is_found_among_several() {
        let etag = "\"ab\"";
        assert!(["\"ab\"", "W/\"ab\"", "\"x\", \"ab\"", "*"].iter().all(|tags| names(tags, etag)));
        assert!(!["", "ab", "\"abc\"", "\"a\", \"b\""].iter().any(|tags| names(tags, etag)));
    }
}
