//! Errors between a client and the server, classified by what the caller can do about them.

use std::{error::Error as _, io, time::Duration};

use chrono::{DateTime, Utc};

use crate::clock::Clock;
use reqwest::{
    Response, StatusCode,
    header::{LOCATION, RETRY_AFTER},
};
use serde::Deserialize;

use super::Client;

/// Most bytes of a refusal's body that are read; a problem document is far smaller.
const PROBLEM_BYTES_MAX: usize = 64 * 1024;

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No connection, no answer in time, or an answer that broke off. Whether the request was executed is unknown.
    Unreachable,
    /// 408, 429 and every 5xx: the same request may succeed later.
    Busy,
    /// 401 and 403: another token is needed.
    Refused,
    /// 404: it does not exist, or belongs to another owner.
    NotFound,
    /// Every other 4xx: the request itself must change.
    Invalid,
    /// The answer violates the contract; most likely another program listens at this address.
    Unexpected,
    /// The caller's own arguments cannot be sent: a malformed address, an event without an id where one is needed.
    Unusable,
}

impl Kind {
    /// Whether a retry can help.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Unreachable | Self::Busy)
    }
}

/// Why a request failed; the members of the server's problem document, if there was one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Error {
    pub kind: Kind,
    /// HTTP status, when there was an answer.
    pub status: Option<u16>,
    /// The server's stable code for the problem, such as `run_ended`.
    pub code: Option<Box<str>>,
    /// One sentence for people.
    pub detail: Box<str>,
    /// What to do about it.
    pub hint: Option<Box<str>>,
    /// The invalid member of the request.
    pub field: Option<Box<str>>,
    /// How long the server asked the client to wait.
    pub retry_after: Option<Duration>,
}

impl Error {
    fn new(kind: Kind, detail: impl Into<Box<str>>) -> Self {
        Self { kind, status: None, code: None, detail: detail.into(), hint: None, field: None, retry_after: None }
    }

    pub(super) fn unusable(detail: impl Into<Box<str>>) -> Self {
        Self::new(Kind::Unusable, detail)
    }

    pub(super) fn unexpected(detail: impl Into<Box<str>>) -> Self {
        let hint = "is there a Runreel server at this address?";
        Self { hint: Some(hint.into()), ..Self::new(Kind::Unexpected, detail) }
    }

    /// An answer that broke off.
    pub(super) fn cut_off() -> Self {
        Self::new(Kind::Unreachable, "the answer was cut off")
    }

    pub(super) fn unreachable(client: &Client, error: &reqwest::Error) -> Self {
        let refused = causes(error)
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|cause| cause.kind() == io::ErrorKind::ConnectionRefused);
        let other_scheme = || {
            let is_parse = |cause: &hyper::Error| cause.is_parse();
            if causes(error).any(|cause| cause.to_string().contains("InvalidContentType")) {
                Some("it does not speak TLS: use http:// instead of https://")
            } else if causes(error).filter_map(|cause| cause.downcast_ref()).any(is_parse) {
                Some("is this the address of an HTTP server? if it speaks TLS, use https:// instead of http://")
            } else {
                None
            }
        };
        let hint = if refused { Some("is the server running? start one with `runreel serve`") } else { other_scheme() };
        let hint = hint.map(Into::into);
        let detail = format!("cannot reach {}: {}", client.base_url(), describe(error));
        Self { hint, ..Self::new(Kind::Unreachable, detail) }
    }

    /// Parses a refusal. A body that is not a problem document (a proxy's page, say) is not repeated.
    pub(super) async fn of(mut response: Response) -> Self {
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let retry_after = retry_after.and_then(|value| parse_retry_after(&value, Clock::System.now()));
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let wanted = wanted(response.url().path());
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            if body.len() + chunk.len() > PROBLEM_BYTES_MAX {
                break;
            }
            body.extend_from_slice(&chunk);
        }
        let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
        let moved = location
            .filter(|_| status.is_redirection())
            .map(|to| format!("it redirects to {to}; use that address").into());
        // The server's answer is the same for a missing resource and for another owner's.
        let absent = wanted.filter(|_| problem.code.as_deref() == Some("not_found"));
        let absent = absent.map(|what| format!("there is no {what}").into());
        Self {
            kind: kind_of(status),
            status: Some(status.as_u16()),
            code: problem.code,
            detail: absent
                .or(problem.detail)
                .or(problem.title)
                .unwrap_or_else(|| format!("the server answered {status}").into()),
            hint: problem.hint.or(moved),
            field: problem.field,
            retry_after,
        }
    }
}

/// The members of an RFC 9457 problem that this client uses.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    title: Option<Box<str>>,
    detail: Option<Box<str>>,
    code: Option<Box<str>>,
    hint: Option<Box<str>>,
    field: Option<Box<str>>,
}

/// The resource that a path of the API names.
fn wanted(path: &str) -> Option<String> {
    let (_, path) = path.split_once("/api/")?;
    let mut parts = path.strip_prefix("stream/").unwrap_or(path).split('/');
    let (list, id) = (parts.next()?, parts.next()?);
    let noun = match list {
        "runs" => "run",
        "threads" => "thread",
        "sessions" => "session",
        "saved-sessions" => "saved session",
        "artifacts" => "artifact",
        "tokens" => "token",
        "channels" => "channel",
        _ => return None,
    };
    // The operator configures channels; everything else has an owner.
    let whose = if list == "channels" { "on this server" } else { "of yours" };
    Some(format!("{noun} {} {whose}", percent_encoding::percent_decode_str(id).decode_utf8_lossy()))
}

fn kind_of(status: StatusCode) -> Kind {
    match status.as_u16() {
        401 | 403 => Kind::Refused,
        404 => Kind::NotFound,
        408 | 429 | 500..=599 => Kind::Busy,
        400..=499 => Kind::Invalid,
        _ => Kind::Unexpected,
    }
}

/// Parses both forms of RFC 9110: a number of seconds, or a date.
pub fn parse_retry_after(value: &str, now: DateTime<Utc>) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = DateTime::parse_from_rfc2822(value).ok()?;
    Some((date.to_utc() - now).to_std().unwrap_or(Duration::ZERO))
}

/// The innermost cause: the outer layers only say that a request was being sent, and repeat its URL.
pub fn describe(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    causes(error).last().map_or_else(|| "the request could not be sent".to_owned(), ToString::to_string)
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_both_its_forms() {
        let now = DateTime::parse_from_rfc3339("2015-10-21T07:27:30Z").unwrap().to_utc();
        assert_eq!(parse_retry_after(" 7 ", now), Some(Duration::from_secs(7)));
        assert_eq!(parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(parse_retry_after("Wed, 21 Oct 2015 07:27:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(parse_retry_after("-1", now), None);
        assert_eq!(parse_retry_after("soon", now), None);
    }

    #[test]
    fn what_is_not_there_is_named_as_its_path_names_it() {
        for (path, what) in [
            ("/api/runs/0198", Some("run 0198 of yours")),
            ("/base/api/stream/runs/0198", Some("run 0198 of yours")),
            ("/api/runs/0198/events", Some("run 0198 of yours")),
            ("/api/threads/a%20b/checkpoints", Some("thread a b of yours")),
            ("/api/saved-sessions/trip", Some("saved session trip of yours")),
            ("/api/channels/web/messages", Some("channel web on this server")),
            ("/api/runs", None),
            ("/api/runners/connect", None),
            ("/livez", None),
        ] {
            assert_eq!(wanted(path).as_deref(), what, "{path}");
        }
    }

    #[test]
    fn only_errors_that_can_pass_are_transient() {
        let transient = |status: u16| kind_of(StatusCode::from_u16(status).unwrap()).is_retryable();
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(transient(status), "{status}");
        }
        for status in [304, 400, 401, 403, 404, 409, 410, 413, 422] {
            assert!(!transient(status), "{status}");
        }
    }
}
