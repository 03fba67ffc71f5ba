//! Classifies a provider's failures for the caller.

use std::{error::Error as _, time::Duration};

use reqwest::{StatusCode, header::HeaderMap};
use serde_json::Value;

use crate::{
    agents::model::{ModelError, ModelErrorKind},
    client::parse_retry_after,
    clock::Clock,
    domain::{
        lenient::{self, Unread},
        limits::{MODEL_ANSWER_BYTES_MAX, MODEL_TOOL_CALLS_MAX},
    },
};

/// Characters of a provider's own message kept in an error.
const WORDS_CHARS_MAX: usize = 500;

/// Phrases in which providers report that a conversation is too long.
const TOO_LONG: &[&str] = &[
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
    "exceed context limit",
    "exceeds the maximum number of tokens",
    "exceeds the context",
    "context window",
    "request_too_large",
];
/// Phrases in which providers refuse.
const REFUSED: &[&str] = &["content_policy", "content_filter", "safety", "insufficient_quota", "billing"];
/// Phrases of temporary failures; they also occur inside a stream that began well.
const LATER: &[&str] = &[
    "overloaded",
    "rate_limit",
    "server_error",
    "api_error",
    "timeout",
    "unavailable",
    "internal_error",
    "internal server error",
    "try again",
];

/// The stream ended before the answer did.
pub(super) fn cut() -> ModelError {
    ModelError::new(ModelErrorKind::Transient, "the provider's response ended early")
}

/// An event of the stream is not JSON, though it begins like it.
pub(super) fn broken() -> ModelError {
    ModelError::new(ModelErrorKind::Transient, "an event of the provider's response is broken JSON")
}

pub(super) fn silent() -> ModelError {
    ModelError::new(ModelErrorKind::Transient, "the provider sent nothing for too long")
}

pub(super) fn too_long() -> ModelError {
    ModelError::new(
        ModelErrorKind::Other,
        format!(
            "the response is longer than {MODEL_ANSWER_BYTES_MAX} bytes or has more than {MODEL_TOOL_CALLS_MAX} tool \
             calls"
        ),
    )
}

/// The key is not a valid header value. The error does not repeat it.
pub(super) fn unsendable() -> ModelError {
    ModelError::new(ModelErrorKind::Other, "the request cannot be sent; check the API key for line breaks")
}

pub(super) fn of_transport(error: &reqwest::Error) -> ModelError {
    if error.is_builder() {
        return unsendable();
    }
    if error.is_body() || error.is_decode() {
        return cut();
    }
    let innermost = std::iter::successors(error.source(), |&cause| cause.source()).last();
    let why = innermost.map_or_else(|| "no connection".to_owned(), ToString::to_string);
    ModelError::new(ModelErrorKind::Transient, format!("the provider cannot be reached: {why}"))
}

/// An error in the stream instead of an answer.
pub(super) fn of_event(error: Unread<'_>) -> ModelError {
    let message = error.value().map(|error| words(&error)).unwrap_or_default();
    of_words(error.as_str(), &message)
}

pub(super) fn of_status(status: StatusCode, body: &str, headers: &HeaderMap) -> ModelError {
    let message = lenient::value(body.as_bytes()).map(|body| words(&body)).unwrap_or_default();
    let number = status.as_u16();
    let text = if message.is_empty() {
        format!("the provider responded with {number}")
    } else {
        format!("{number}: {message}")
    };
    let kind = match (number, kind_of_words(body)) {
        (401 | 403, _) => ModelErrorKind::Auth,
        (413, _) => ModelErrorKind::ContextTooLong,
        (300..=399, _) => {
            return ModelError::new(
                ModelErrorKind::Other,
                "the provider's address redirects; configure the target address",
            );
        }
        (402, _) => ModelErrorKind::Refused,
        // Words of a refusal outweigh a retryable status; a temporary phrase does not make another status retryable.
        (408 | 409 | 425 | 429 | 500..=599, Some(ModelErrorKind::Refused)) => ModelErrorKind::Refused,
        (408 | 409 | 425 | 429 | 500..=599, _) => ModelErrorKind::Transient,
        (_, Some(kind @ (ModelErrorKind::ContextTooLong | ModelErrorKind::Refused))) => kind,
        _ => ModelErrorKind::Other,
    };
    ModelError { retry_after: retry_after(headers), ..ModelError::new(kind, text) }
}

fn of_words(body: &str, message: &str) -> ModelError {
    let kind = kind_of_words(body).unwrap_or(ModelErrorKind::Other);
    let text = if message.is_empty() { "the provider ended its response early" } else { message };
    ModelError::new(kind, text)
}

fn kind_of_words(body: &str) -> Option<ModelErrorKind> {
    let body = body.to_lowercase();
    let holds = |words: &[&str]| words.iter().any(|word| body.contains(word));
    if holds(TOO_LONG) {
        Some(ModelErrorKind::ContextTooLong)
    } else if holds(REFUSED) {
        Some(ModelErrorKind::Refused)
    } else if holds(LATER) {
        Some(ModelErrorKind::Transient)
    } else {
        None
    }
}

/// The human-readable message in an error's body, wherever the provider put it.
fn words(body: &Value) -> String {
    let places = [&body["error"]["message"], &body["message"], &body["error"], &body["detail"], body];
    let text = places.into_iter().find_map(Value::as_str).unwrap_or_default();
    text.chars().filter(|c| !c.is_control()).take(WORDS_CHARS_MAX).collect()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let millis = text("retry-after-ms").and_then(|value| value.trim().parse().ok()).map(Duration::from_millis);
    millis.or_else(|| text("retry-after").and_then(|value| parse_retry_after(value, Clock::System.now())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_says_is_sorted_by_what_the_caller_can_do() {
        use ModelErrorKind::{Auth, ContextTooLong, Other, Refused, Transient};
        for (status, body, expected) in [
            (401, r#"{"error":{"message":"Incorrect API key provided"}}"#, Auth),
            (403, "", Auth),
            (429, r#"{"error":{"message":"slow down","type":"rate_limit_error"}}"#, Transient),
            (429, r#"{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}"#, Refused),
            (500, "<html>", Transient),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Transient),
            (400, r#"{"error":{"code":"context_length_exceeded","message":"maximum context length"}}"#, ContextTooLong),
            (400, r#"{"error":{"message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#, ContextTooLong),
            (413, "", ContextTooLong),
            (400, r#"{"error":{"code":"content_policy_violation","message":"no"}}"#, Refused),
            (404, r#"{"error":"model 'x' not found"}"#, Other),
            (400, r#"{"error":{"message":"timeout is not a parameter"}}"#, Other),
            (302, "", Other),
        ] {
            let error = of_status(StatusCode::from_u16(status).unwrap(), body, &HeaderMap::new());
            assert_eq!(error.kind, expected, "{status} {body}");
            assert!(!error.message.contains('<'), "a page is not repeated: {}", error.message);
        }
        assert_eq!(of_words(r#"{"type":"overloaded_error"}"#, "Overloaded").kind, Transient);
    }

    #[test]
    fn the_wait_a_provider_asks_for_is_read_to_the_millisecond() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "7".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(7)));
        headers.insert("retry-after-ms", "120".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(Duration::from_millis(120)));
    }
}
