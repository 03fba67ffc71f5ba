//! Errors as RFC 9457 problem documents: a stable code, what was wrong, what to do. Never SQL, a path, a backtrace.

mod emit;

use std::{borrow::Cow, time::Duration};

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::refusals::Refused;
use crate::{
    auth,
    domain::{id::Malformed, json::InvalidJson, limits::PROVIDER_PAUSE_S, run::OutOfBounds},
    quota::Full,
    store,
};

/// The error codes. A code never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    InvalidRequest,
    InvalidEvent,
    InvalidCursor,
    RoleMismatch,
    TokenInUrl,
    CredentialInBody,
    Unauthorized,
    Forbidden,
    HostNotAllowed,
    NotFound,
    MethodNotAllowed,
    RunExists,
    ExternalIdTaken,
    ThreadExists,
    RunEnded,
    RunNotEnded,
    ImportConflict,
    LogIncomplete,
    ArtifactExists,
    InvalidTransition,
    InterruptClosed,
    InterruptExists,
    CursorAhead,
    TooLarge,
    TooSlow,
    UnsupportedMediaType,
    RangeNotSatisfiable,
    UpgradeRequired,
    Busy,
    Internal,
    Unavailable,
    OutcomeUnknown,
    StorageUnavailable,
    ProviderUnavailable,
    StorageFull,
    UnreadableSession,
    QueryRefused,
    QueryFailed,
    QueryTooSlow,
}

impl Code {
    fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest
            | Self::InvalidEvent
            | Self::InvalidCursor
            | Self::RoleMismatch
            | Self::TokenInUrl
            | Self::CredentialInBody => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::HostNotAllowed => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RunExists
            | Self::ExternalIdTaken
            | Self::ThreadExists
            | Self::RunEnded
            | Self::RunNotEnded
            | Self::ImportConflict
            | Self::LogIncomplete
            | Self::ArtifactExists
            | Self::InvalidTransition
            | Self::InterruptClosed
            | Self::InterruptExists
            | Self::CursorAhead => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable | Self::OutcomeUnknown | Self::StorageUnavailable | Self::ProviderUnavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
            Self::UnreadableSession | Self::QueryRefused | Self::QueryFailed | Self::QueryTooSlow => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "Invalid request",
            Self::InvalidEvent => "Invalid event",
            Self::InvalidCursor => "Invalid cursor",
            Self::RoleMismatch => "Role or agent differs from the run's",
            Self::TokenInUrl => "Credentials are not allowed in URLs",
            Self::CredentialInBody => "Credentials are not allowed in request bodies",
            Self::Unauthorized => "Authentication required",
            Self::Forbidden => "Forbidden",
            Self::HostNotAllowed => "Host not allowed",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::RunExists => "Run exists with different content",
            Self::ExternalIdTaken => "External id already in use",
            Self::ThreadExists => "Thread already has checkpoints",
            Self::RunEnded => "Run has ended",
            Self::RunNotEnded => "Run has not ended",
            Self::ImportConflict => "A different run with this id exists",
            Self::LogIncomplete => "Log incomplete",
            Self::ArtifactExists => "Artifact id already in use",
            Self::InvalidTransition => "Invalid state transition",
            Self::InterruptClosed => "Interrupt already answered",
            Self::InterruptExists => "Interrupt asked before",
            Self::CursorAhead => "Cursor is ahead of the log",
            Self::TooLarge => "Request exceeds a limit",
            Self::TooSlow => "Request arrived too slowly",
            Self::UnsupportedMediaType => "Unsupported media type",
            Self::UpgradeRequired => "WebSocket upgrade required",
            Self::Busy => "Server busy",
            Self::Internal => "Internal server error",
            Self::Unavailable => "Database unavailable",
            Self::OutcomeUnknown => "Outcome unknown",
            Self::RangeNotSatisfiable => "Range not satisfiable",
            Self::StorageUnavailable => "Storage unavailable",
            Self::ProviderUnavailable => "Identity provider unavailable",
            Self::StorageFull => "Storage full",
            Self::UnreadableSession => "Saved session is unreadable",
            Self::QueryRefused => "Query not available",
            Self::QueryFailed => "Query failed",
            Self::QueryTooSlow => "Query took too long",
        }
    }

    /// Seconds after which a retry makes sense.
    fn retry_after_s(self) -> Option<u32> {
        match self {
            Self::Busy | Self::Unavailable | Self::OutcomeUnknown | Self::StorageUnavailable => Some(1),
            Self::ProviderUnavailable => Some(PROVIDER_PAUSE_S),
            _ => None,
        }
    }

    pub(super) fn word(self) -> String {
        serde_json::to_value(self).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

/// What Postgres says of a query.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct InQuery {
    /// Of a query: the character where it is wrong, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// Of a query: the error code of Postgres.
    #[serde(skip_serializing_if = "Option::is_none")]
    sqlstate: Option<String>,
}

/// An error response (`application/problem+json`, RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// A URI that names the kind of problem: `urn:runreel:problem:<code>`. docs/protocol.md explains each.
    #[serde(rename = "type")]
    #[schema(example = "urn:runreel:problem:not_found")]
    kind: Box<str>,
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What was wrong with this request.
    detail: String,
    code: Code,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Cow<'static, str>>,
    /// The member or parameter concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<Box<str>>,
    #[serde(flatten)]
    in_query: Option<Box<InQuery>>,
    /// When another try makes sense, where the code alone does not say.
    #[serde(skip)]
    retry_after_s: Option<u32>,
}

impl Problem {
    /// Too many are in progress. `what` is a plural.
    pub fn busy(full: Full, what: &str) -> Self {
        let detail = match full {
            Full::Own => format!("too many {what} of this principal are in progress"),
            Full::All => format!("too many {what} are in progress on this server"),
        };
        Self::new(Code::Busy, detail).hint("nothing was done; try again after Retry-After")
    }

    /// Asks the client to retry no sooner than after this.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        let seconds = wait.as_millis().div_ceil(1_000).max(1);
        Self { retry_after_s: Some(u32::try_from(seconds).unwrap_or(u32::MAX)), ..self }
    }

    /// The problem for a runner: the code, and what was wrong where.
    pub fn for_runner(&self) -> (Code, String) {
        let place = self.field.as_deref().map_or_else(String::new, |field| format!("{field}: "));
        (self.code, place + &self.detail)
    }

    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:runreel:problem:{}", code.word()).into_boxed_str(),
            title: code.title(),
            status: code.status().as_u16(),
            detail: detail.into(),
            code,
            hint: None,
            field: None,
            in_query: None,
            retry_after_s: code.retry_after_s(),
        }
    }

    /// Another owner's id and an id that does not exist are answered with exactly these bytes.
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "not found")
    }

    /// A list cursor that was not issued by this server.
    pub fn bad_cursor() -> Self {
        Self::new(Code::InvalidCursor, "this cursor was not issued by this server")
            .field("cursor")
            .hint("send next_cursor unchanged, or omit the cursor to start from the beginning")
    }

    #[must_use]
    pub fn hint(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Adds where a query is wrong, and the error code of Postgres.
    #[must_use]
    pub fn in_query(self, position: Option<usize>, sqlstate: Option<String>) -> Self {
        Self { in_query: Some(Box::new(InQuery { position, sqlstate })), ..self }
    }

    #[must_use]
    pub fn field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into().into_boxed_str()), ..self }
    }

    /// Adds the part of the request that is wrong.
    #[must_use]
    pub fn within(self, place: impl std::fmt::Display) -> Self {
        Self { detail: format!("{place}: {}", self.detail), ..self }
    }

    pub fn code(&self) -> Code {
        self.code
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (code, retry_after_s) = (self.code, self.retry_after_s);
        let refused = Refused::is_by(code).then(|| Refused { code, detail: self.detail.clone() });
        let mut response = (code.status(), Json(self)).into_response();
        if let Some(refused) = refused {
            response.extensions_mut().insert(refused);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if code == Code::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Malformed> for Problem {
    fn from(malformed: Malformed) -> Self {
        Self::new(Code::InvalidRequest, malformed.to_string())
    }
}

impl From<OutOfBounds> for Problem {
    fn from(fault: OutOfBounds) -> Self {
        let code = if fault.is_too_large { Code::TooLarge } else { Code::InvalidRequest };
        Self::new(code, fault.rule).field(fault.field)
    }
}

impl From<InvalidJson> for Problem {
    fn from(flaw: InvalidJson) -> Self {
        Self::new(Code::InvalidRequest, flaw.to_string())
    }
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Busy => Self::new(Code::Busy, "too many concurrent requests of this principal")
                .hint("nothing was done; try again after Retry-After, with fewer at a time"),
            store::Error::Unavailable(_) if error.is_too_slow() => {
                tracing::warn!(error = &error as &dyn std::error::Error, "request too large for the database");
                Self::new(Code::Busy, "the database did not answer within the time limit of a request")
                    .hint("ask for less at once, or try again after Retry-After")
            }
            store::Error::Unavailable(None) => {
                tracing::warn!("request failed: database timeout");
                Self::new(Code::Unavailable, "the database did not answer in time").hint("try again after Retry-After")
            }
            store::Error::Unavailable(_) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "request failed: database unreachable");
                let outage = error.outage().unwrap_or(store::Outage::Unreachable);
                Self::new(Code::Unavailable, outage.to_string()).hint("try again after Retry-After")
            }
            store::Error::Conflict(_) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "write conflict");
                Self::new(Code::Unavailable, "a concurrent request changed the same data; nothing was changed")
                    .hint("try again after Retry-After")
            }
            store::Error::Unstorable(_) => Self::new(Code::InvalidRequest, error.to_string())
                .hint("check for numbers with very many digits and very long names"),
            store::Error::TooLarge(detail) => Self::new(Code::TooLarge, detail),
            store::Error::Broken(_) | store::Error::Incompatible(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "request failed in the database");
                Self::new(Code::Internal, "the request failed in the database; nothing was changed")
            }
        }
    }
}

impl Problem {
    /// The problem of a failed change. One without a reply from the database may have been made nevertheless.
    pub fn of_change(error: store::Error) -> Self {
        if error.outage().is_none() && error.fate() != store::Fate::Unreadable {
            return error.into();
        }
        tracing::warn!(error = &error as &dyn std::error::Error, "the database did not answer a write");
        Self::new(Code::OutcomeUnknown, "the database did not answer in time; the change may or may not have been made")
            .hint("send the same request again: it is safe to repeat")
    }
}

impl From<auth::Error> for Problem {
    fn from(error: auth::Error) -> Self {
        match error {
            auth::Error::Missing => Self::new(Code::Unauthorized, "this server requires a bearer token")
                .hint("send the header: Authorization: Bearer <token>"),
            auth::Error::Invalid(rule) => Self::new(Code::Unauthorized, rule),
            auth::Error::ProviderUnavailable => Self::new(Code::ProviderUnavailable, error.to_string())
                .hint("send the request again after Retry-After; the server's log has the cause"),
            auth::Error::Store(error) => error.into(),
        }
    }
}

/// The rule that the event at `index` of a request breaks.
pub fn invalid_event(index: usize, field: &str, rule: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidEvent, rule).field(format!("events[{index}].{field}"))
}
