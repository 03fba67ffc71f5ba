//! HTTP: translation, nothing more.
//!
//! Handlers take typed arguments, make one call into [`crate::timeline`] and give a typed reply. The whole route table
//! is in [`router`]; each resource has a file. Invariants kept here: every answer below 200–299 is a [`problem::Problem`];
//! somebody else's id answers like an absent one; every body, page and stream has a bound.
//!
//! Start reading at [`router`], then [`extract`] (the door), [`events`] (in) and [`stream`] (out).

mod artifacts;
mod channels;
mod checkpoints;
mod credential;
mod events;
mod export;
mod extract;
mod health;
mod interrupts;
mod model;
mod openapi;
pub mod problem;
mod refusals;
mod runners;
mod runs;
mod saved_sessions;
pub mod serve;
mod sessions;
mod sse;
mod stream;
mod threads;
mod timeline;
mod ui;

use std::sync::Arc;

use axum::{
    Router,
    http::{HeaderName, HeaderValue, Response, StatusCode, header},
    middleware::map_response,
    response::IntoResponse,
};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::{catch_panic::CatchPanicLayer, set_header::SetResponseHeaderLayer};
use utoipa_axum::router::OpenApiRouter;

use self::{
    problem::{Code, Problem},
    refusals::Refusals,
};
use crate::{
    auth::{Authenticator, Revocations},
    channels::Channels,
    domain::limits::{BODIES_KIB_MAX, IMPORTS_MAX, STREAMS_MAX},
    runners::Runners,
    sessions::saved::SavedSessions,
    threads::Threads,
    timeline::Timeline,
};

/// What handlers work with. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    pub timeline: Timeline,
    pub threads: Threads,
    pub channels: Channels,
    pub saved: SavedSessions,
    pub runners: Runners,
    pub authenticator: Authenticator,
    pub revocations: Revocations,
    pub metrics: PrometheusHandle,
    /// One permit per open stream.
    pub streams: Arc<Semaphore>,
    /// One permit per KiB of a body that is being read or worked on.
    pub bodies: Arc<Semaphore>,
    /// One permit per import that is worked on.
    pub imports: Arc<Semaphore>,
    pub draining: CancellationToken,
}

/// What a [`Server`] is made of.
pub struct Parts {
    pub timeline: Timeline,
    pub threads: Threads,
    pub channels: Channels,
    pub saved: SavedSessions,
    pub runners: Runners,
    pub authenticator: Authenticator,
    pub revocations: Revocations,
    pub metrics: PrometheusHandle,
    pub draining: CancellationToken,
}

impl Server {
    pub fn new(parts: Parts) -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS_MAX));
        let bodies = Arc::new(Semaphore::new(BODIES_KIB_MAX));
        let imports = Arc::new(Semaphore::new(IMPORTS_MAX));
        let Parts { timeline, threads, channels, saved, runners, authenticator, revocations, metrics, draining } =
            parts;
        Self {
            timeline,
            threads,
            channels,
            saved,
            runners,
            authenticator,
            revocations,
            metrics,
            streams,
            bodies,
            imports,
            draining,
        }
    }
}

/// Every route of the API, with its description.
fn api() -> OpenApiRouter<Server> {
    OpenApiRouter::with_openapi(openapi::document())
        .merge(runs::routes()) //        /api/runs, /api/runs/{run_id}, …/cancel, …/heartbeat
        .merge(interrupts::routes()) //  /api/runs/{run_id}/resume
        .merge(events::routes()) //      /api/runs/{run_id}/events
        .merge(export::routes()) //      /api/runs/{run_id}/export, …/import
        .merge(timeline::routes()) //    /api/runs/{run_id}/timeline
        .merge(artifacts::routes()) //   /api/runs/{run_id}/artifacts, /api/artifacts/{artifact_id}
        .merge(threads::routes()) //     /api/threads, /api/threads/{thread_id}, …/copy, …/runs, …/messages, …/prune
        .merge(checkpoints::routes()) // …/checkpoints, …/{checkpoint_id}, …/latest, …/writes, /api/checkpoints
        .merge(channels::routes()) //    /api/channels/{channel}/messages, …/codes, /api/channels/telegram/webhook
        .merge(sessions::routes()) //    /api/sessions, /api/sessions/{session_id}/end, …/log.jsonl
        .merge(saved_sessions::routes()) // /api/saved-sessions, /api/saved-sessions/{name}, …/restore
        .merge(stream::routes()) //      /api/stream/runs, /api/stream/runs/{run_id}, /api/stream/threads/{thread_id}
        .merge(runners::routes()) //     /api/runners/connect
        .merge(health::routes()) //      /livez, /readyz, /metrics
}

/// The `OpenAPI` 3.1 document of the API.
pub fn openapi() -> utoipa::openapi::OpenApi {
    api().into_openapi()
}

/// The whole service: the API, its documents, the UI.
pub fn router(server: Server) -> Router {
    let (api, document) = api().split_for_parts();
    let refusals = Arc::new(Refusals::default());
    let nosniff = SetResponseHeaderLayer::overriding(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    api.merge(openapi::routes(document)) // /openapi.json, /docs
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "this path has no such method").into_response()
        })
        .fallback(ui::serve) //             /, /runs/{run_id}, /assets/…
        .layer(CatchPanicLayer::custom(panicked))
        .layer(map_response(plain_errors_are_problems))
        .layer(map_response(move |response: axum::response::Response| {
            refusals.note(&response);
            std::future::ready(response)
        }))
        .layer(nosniff)
        .with_state(server)
}

/// A bug must not take the connection down, nor tell of itself.
fn panicked(_: Box<dyn std::any::Any + Send>) -> Response<axum::body::Body> {
    Problem::new(Code::Internal, "the request failed; nothing was changed that was not acknowledged").into_response()
}

/// What the framework refuses by itself becomes a problem as well.
async fn plain_errors_are_problems(response: axum::response::Response) -> axum::response::Response {
    let status = response.status();
    let typed = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().ends_with(b"json"));
    if typed || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    match status {
        StatusCode::NOT_FOUND => Problem::not_found().into_response(),
        StatusCode::METHOD_NOT_ALLOWED => {
            Problem::new(Code::MethodNotAllowed, "this path has no such method").into_response()
        }
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(Code::TooLarge, "the request is over a bound").into_response(),
        status if status.is_client_error() => {
            Problem::new(Code::InvalidRequest, "the request is malformed").into_response()
        }
        _ => response,
    }
}
