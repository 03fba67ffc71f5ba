//! Pages of other origins (CORS, <https://fetch.spec.whatwg.org/#http-cors-protocol>).
//!
//! Only listed origins are named in responses, and never together with cookies: the access of a page is the token that
//! its visitor gave it.

use std::time::Duration;

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue, Method, header},
};
use tower_http::cors::{AllowHeaders, CorsLayer};

use super::sql;
use crate::{config::CorsOrigin, faces::ai_sdk};

/// How long a browser may remember the answer to a preflight request.
const PREFLIGHT_AGE: Duration = Duration::from_hours(1);

/// Most header names that a preflight request may ask for; further ones are left out of the answer.
const NAMES_MAX: usize = 64;

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

    /// Answers preflight requests, and names the origins that may read responses. `None` if no origin is listed.
    pub(super) fn layer(&self) -> Option<CorsLayer> {
        if self.0.is_empty() {
            return None;
        }
        let layer = CorsLayer::new()
            .allow_origin(self.0.clone())
            .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            // The page itself sets the header with the credential, so there is no header to forbid.
            .allow_headers(AllowHeaders::mirror_request())
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
                sql::TRUNCATED,
                HeaderName::from_static(ai_sdk::HEADER.0),
            ])
            .max_age(PREFLIGHT_AGE);
        Some(layer)
    }
}

/// Reduces a preflight request's list to valid header names, since the answer repeats it.
pub(super) async fn ask_for_names(mut request: Request) -> Request {
    if request.method() == Method::OPTIONS {
        let asked = request.headers().get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter();
        let asked = asked.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        let names = asked.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok());
        let names: Vec<HeaderName> = names.take(NAMES_MAX).collect();
        let names = names.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(", ");
        request.headers_mut().remove(header::ACCESS_CONTROL_REQUEST_HEADERS);
        if let Some(names) = HeaderValue::from_str(&names).ok().filter(|names| !names.is_empty()) {
            request.headers_mut().insert(header::ACCESS_CONTROL_REQUEST_HEADERS, names);
        }
    }
    request
}
