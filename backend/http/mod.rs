//! HTTP: translation only.
//!
//! Handlers take typed arguments, delegate the work (for events and runs, to [`crate::timeline`]), and return a typed
//! reply. The whole route table is in [`router`]; each resource has a file. Invariants: every error response is a
//! [`problem::Problem`]; another owner's id is answered like an absent one; every body, page and stream has a bound.
//!
//! Start reading at [`router`], then [`extract`] (what every request passes), [`events`] (in) and [`stream`] (out).

mod agents;
mod agui;
mod ai_sdk;
mod artifacts;
mod body;
mod caller;
mod channels;
mod chats;
mod checkpoints;
mod compression;
mod cors;
mod credential;
mod events;
mod export;
mod extract;
mod handler;
mod health;
mod index;
mod interrupts;
mod lasting;
mod many_streams;
mod openapi;
mod outputs;
mod page;
pub mod problem;
mod refusals;
mod replies;
mod responses;
mod run_lists;
mod run_search;
mod runners;
mod runs;
mod saved_sessions;
pub mod serve;
mod server_info;
mod sessions;
mod sql;
mod stream;
mod stream_body;
mod suggestion;
mod threads;
mod timeline;
pub mod tls;
mod tokens;
mod ui;
mod usage;
mod verify;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Response, StatusCode, header},
    middleware::{Next, from_fn, from_fn_with_state, map_request, map_response},
    response::IntoResponse,
};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;
use tower_http::{catch_panic::CatchPanicLayer, set_header::SetResponseHeaderLayer};
use utoipa_axum::router::OpenApiRouter;

pub use self::agents::ConfiguredAgent;
use self::{
    cors::Origins,
    problem::{Code, Problem},
    refusals::Refusals,
    suggestion::Routes,
};
use crate::{
    auth::{Authenticator, Revocations},
    channels::Channels,
    clock::Stopwatch,
    config::{Bounds, CorsOrigin},
    domain::{
        limits::{
            BODIES_KIB_MAX, IMPORTS_MAX, IMPORTS_OWN_MAX, REPLIES_OWN_STEPS_MAX, REPLIES_STEPS_MAX, STREAMS_MAX,
            TIMELINE_WAIT_MS_MAX, TIMELINES_MAX, TIMELINES_OWN_MAX, WEBHOOKS_KIB_MAX, WEBHOOKS_OWN_KIB_MAX,
        },
        principal::OwnerId,
    },
    quota::{Quota, Share},
    rate::Rate,
    retention::Retention,
    runners::Runners,
    saved::SavedSessions,
    store::{queries::Queries, replica::Readers},
    threads::Threads,
    timeline::Timeline,
};

/// The handlers' state. Cloned several times for each request.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

/// The parts of a [`Server`].
pub struct Shared {
    pub timeline: Timeline,
    pub threads: Threads,
    pub retention: Retention,
    pub channels: Channels,
    pub saved: SavedSessions,
    pub runners: Runners,
    /// The configured agents.
    pub agents: Vec<ConfiguredAgent>,
    pub queries: Queries,
    pub readers: Readers,
    pub authenticator: Authenticator,
    pub revocations: Revocations,
    pub metrics: PrometheusHandle,
    /// The origins whose pages may use the API.
    pub origins: Origins,
    /// Open streams.
    pub streams: Quota,
    /// Bodies that are being read or processed, KiB.
    pub bodies: Quota,
    /// The same for requests without our credential, KiB.
    pub webhooks: Quota,
    /// Imports in progress.
    pub imports: Quota,
    /// Large replies that are being created or sent, in steps of 64 KiB.
    pub replies: Quota,
    /// Timelines that are being created or sent.
    pub timelines: Quota,
    /// Emitted events.
    pub emits: Rate,
    /// Created runs.
    pub creations: Rate,
    /// Bytes of bodies and uploads.
    pub received: Rate,
    /// Set before `draining`: the server announces its shutdown, and still accepts everything.
    pub leaving: CancellationToken,
    pub draining: CancellationToken,
}

/// The parts that a [`Server`] is built from.
pub struct Parts {
    pub timeline: Timeline,
    pub threads: Threads,
    pub retention: Retention,
    pub channels: Channels,
    pub saved: SavedSessions,
    pub runners: Runners,
    pub agents: Vec<ConfiguredAgent>,
    pub queries: Queries,
    pub authenticator: Authenticator,
    pub revocations: Revocations,
    pub metrics: PrometheusHandle,
    pub bounds: Bounds,
    pub cors_origins: Vec<CorsOrigin>,
    pub stopwatch: Stopwatch,
    pub draining: CancellationToken,
}

impl std::ops::Deref for Server {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Server {
    pub fn new(parts: Parts) -> Self {
        let Parts { timeline, threads, retention, channels, saved, runners, authenticator, revocations, .. } = parts;
        let Parts { agents, queries, metrics, bounds, cors_origins, stopwatch, draining, .. } = parts;
        Self(Arc::new(Shared {
            timeline,
            threads,
            retention,
            channels,
            saved,
            runners,
            agents,
            readers: queries.readers().clone(),
            queries,
            authenticator,
            revocations,
            metrics,
            origins: Origins::new(&cors_origins),
            streams: Quota::new(STREAMS_MAX, bounds.principal_streams),
            bodies: Quota::new(BODIES_KIB_MAX, bounds.principal_bodies_mib * 1_024),
            webhooks: Quota::new(WEBHOOKS_KIB_MAX, WEBHOOKS_OWN_KIB_MAX),
            imports: Quota::new(IMPORTS_MAX, IMPORTS_OWN_MAX),
            replies: Quota::new(REPLIES_STEPS_MAX, REPLIES_OWN_STEPS_MAX),
            timelines: Quota::new(TIMELINES_MAX, TIMELINES_OWN_MAX),
            emits: Rate::new(bounds.principal_events_per_second, Duration::from_secs(1), Arc::clone(&stopwatch)),
            creations: Rate::new(bounds.principal_runs_per_minute, Duration::from_mins(1), Arc::clone(&stopwatch)),
            received: Rate::new(bounds.principal_kib_per_second * 1_024, Duration::from_secs(1), stopwatch),
            leaving: CancellationToken::new(),
            draining,
        }))
    }

    /// Waits for a turn to read a whole run, for its timeline or for something as expensive.
    async fn timeline_turn(&self, owner: &OwnerId) -> Result<Share, Problem> {
        let wait = Duration::from_millis(TIMELINE_WAIT_MS_MAX);
        let turn = tokio::time::timeout(wait, self.timelines.take(owner, 1)).await.ok().and_then(Result::ok);
        turn.ok_or_else(|| Problem::new(Code::Busy, "too many whole runs are being read"))
    }
}

/// Every route of the API, with its description.
fn api() -> OpenApiRouter<Server> {
    OpenApiRouter::with_openapi(openapi::document())
        .merge(runs::routes()) //        /api/runs, /api/runs/{run_id}, …/cancel, …/heartbeat
        .merge(run_lists::routes()) //   /api/runs/histogram
        .merge(run_search::routes()) //  /api/runs/{run_id}/search
        .merge(interrupts::routes()) //  /api/runs/{run_id}/resume, /api/interrupts
        .merge(events::routes()) //      /api/runs/{run_id}/events
        .merge(export::routes()) //      /api/runs/{run_id}/export, …/import
        .merge(timeline::routes()) //    /api/runs/{run_id}/timeline
        .merge(usage::routes()) //       /api/runs/{run_id}/usage
        .merge(verify::routes()) //      /api/runs/{run_id}/verify
        .merge(artifacts::routes()) //   /api/runs/{run_id}/artifacts, /api/artifacts, /api/artifacts/{artifact_id}
        .merge(threads::routes()) //     /api/threads, /api/threads/{thread_id}, …/copy, …/runs, …/messages, …/prune
        .merge(checkpoints::routes()) // …/checkpoints, …/{checkpoint_id}, …/latest, …/writes, /api/checkpoints
        .merge(channels::routes()) //    /api/channels/{channel}/messages, …/codes, /api/channels/telegram/webhook
        .merge(sessions::routes()) //    /api/sessions, /api/sessions/{session_id}/end, …/log.jsonl
        .merge(saved_sessions::routes()) // /api/saved-sessions, /api/saved-sessions/{name}, …/restore
        .merge(stream::routes()) //      /api/stream/runs, /api/stream/runs/{run_id}, /api/stream/threads/{thread_id}
        .merge(many_streams::routes()) // /api/stream
        .merge(agents::routes()) //      /api/agents
        .merge(server_info::routes()) // /api/server
        .merge(agui::routes()) //        /api/agui/agents/{agent}, /api/agui/runs/{run_id}
        .merge(ai_sdk::routes()) //      /api/ai-sdk/agents/{agent}, …/{chat_id}/stream
        .merge(responses::routes()) //   /v1/responses, /v1/responses/{response_id}, …/cancel, …/input_items
        .merge(sql::routes()) //         /api/sql, /api/sql/schema
        .merge(tokens::routes()) //      /api/tokens, /api/tokens/{token_id}, /api/runs/{run_id}/tokens, /api/threads/…/tokens
        .merge(runners::routes()) //     /api/runners/connect
        .merge(health::routes()) //      /livez, /readyz, /metrics
}

/// The `OpenAPI` 3.1 document of the API.
pub fn openapi() -> utoipa::openapi::OpenApi {
    api().into_openapi()
}

/// The whole service: the API, its documents, the UI.
pub fn router(server: Server) -> Router {
    let (handlers, document) = api().split_for_parts();
    let routes = Arc::new(Routes::of(&document));
    let refusals = Arc::new(Refusals::default());
    let cors = server.origins.layer();
    let always = |name, value| {
        SetResponseHeaderLayer::overriding(HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    let service = handlers
        .merge(openapi::routes(&document)) // /openapi.json
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "this path does not support the method").into_response()
        })
        .fallback(move |State(server): State<Server>, request: Request| {
            // /, /runs/{run_id}, /tokens, /docs, /assets/…
            std::future::ready(ui::serve(&routes, &server, request))
        })
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(server.clone(), replies::count))
        .layer(map_response(plain_errors_are_problems))
        .layer(from_fn(responses::errors_in_its_words))
        .layer(from_fn(refuse_ambiguous))
        .layer(map_response(move |response: axum::response::Response| {
            refusals.note(&response);
            std::future::ready(response)
        }))
        .layer(always("x-content-type-options", "nosniff"))
        .layer(always("cross-origin-resource-policy", "same-origin"))
        .layer(compression::layer())
        .layer(map_request(compression::forgive))
        .with_state(server);
    match cors {
        Some(cors) => service.layer(cors).layer(map_request(cors::ask_for_names)),
        None => service,
    }
}

/// A bug must not take the connection down, nor reveal anything about itself.
fn panicked(_: Box<dyn std::any::Any + Send>) -> Response<axum::body::Body> {
    Problem::new(Code::Internal, "the request failed; nothing was changed that was not acknowledged").into_response()
}

/// Rejects what a proxy and this server could read differently.
async fn refuse_ambiguous(request: Request, next: Next) -> Response<axum::body::Body> {
    let hosts: Vec<&[u8]> = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes).collect();
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    if hosts.len() > 1 || hosts.first().zip(authority).is_some_and(|(host, authority)| *host != authority) {
        return closing(Problem::new(Code::InvalidRequest, "the request has more than one Host").into_response());
    }
    // A proxy may have checked another one.
    if request.headers().get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
        let detail = "the request has more than one Authorization";
        return Problem::new(Code::InvalidRequest, detail).into_response();
    }
    // hyper hides a Content-Length beside it, so such a request cannot be told from a valid one. Closing the connection
    // discards what another reader would take for the next request.
    let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    let response = next.run(request).await;
    if is_chunked { closing(response) } else { response }
}

fn closing(mut response: Response<axum::body::Body>) -> Response<axum::body::Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Turns the framework's own rejections, which are plain text, into problems.
async fn plain_errors_are_problems(response: axum::response::Response) -> axum::response::Response {
    let status = response.status();
    let is_ours = |t: &HeaderValue| t.as_bytes().ends_with(b"json") || t.as_bytes().starts_with(b"text/html");
    let typed = response.headers().get(header::CONTENT_TYPE).is_some_and(is_ours);
    if typed || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    match status {
        StatusCode::NOT_FOUND => Problem::not_found().into_response(),
        StatusCode::METHOD_NOT_ALLOWED => {
            Problem::new(Code::MethodNotAllowed, "this path does not support the method").into_response()
        }
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(Code::TooLarge, "the request exceeds a limit").into_response(),
        status if status.is_client_error() => {
            Problem::new(Code::InvalidRequest, "the request is malformed").into_response()
        }
        _ => response,
    }
}
