//! Pages of other origins (CORS, <https://fetch.spec.whatwg.org/#http-cors-protocol>).
//!
//! Only listed origins are named in responses, and never together with cookies: a page has what access its visitor
//! gave it as a token.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::CorsLayer;

use crate::config::CorsOrigin;

/// How long a browser may remember the answer to a preflight request.
const PREFLIGHT_AGE: Duration = Duration::from_hours(1);

/// The origins whose pages may use the API.
#[derive(Debug)]
pub struct Origins(Vec<HeaderValue>);

impl Origins {
    pub(super) fn new(origins: &[CorsOrigin]) -> Self {
        Self(origins.iter().filter_map(|origin| HeaderValue::from_str(origin.as_str()).ok()).collect())
    }

    /// Whether a page of this origin may read responses.
    pub(super) fn admits(&self, origin: &HeaderValue) -> bool {
        self.0.contains(origin)
    }

    /// Answers preflight requests, and tells browsers who may read a response. `None` if no origin is listed.
    pub(super) fn layer(&self) -> Option<CorsLayer> {
        if self.0.is_empty() {
            return None;
        }
        let layer = CorsLayer::new()
            .allow_origin(self.0.clone())
            .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            .allow_headers([
                header::ACCEPT,
                header::AUTHORIZATION,
                header::CONTENT_TYPE,
                header::IF_NONE_MATCH,
                header::IF_RANGE,
                header::RANGE,
                HeaderName::from_static("last-event-id"),
                HeaderName::from_static("traceparent"),
                HeaderName::from_static("tracestate"),
            ])
            .expose_headers([
                header::ACCEPT_RANGES,
                header::ALLOW,
                header::CONTENT_DISPOSITION,
                header::CONTENT_LENGTH,
                header::CONTENT_RANGE,
                header::ETAG,
                header::LOCATION,
                header::RETRY_AFTER,
                header::WWW_AUTHENTICATE,
            ])
            .max_age(PREFLIGHT_AGE);
        Some(layer)
    }
}
