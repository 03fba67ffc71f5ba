//! Liveness, readiness and metrics of the process.

use axum::{
    Json as Reply,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use utoipa_axum::router::OpenApiRouter;

use super::{Server, handler::routes};
use crate::wire::health::Health;

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(livez)).routes(routes!(readyz)).routes(routes!(metrics))
}

fn health(status: &str) -> Health {
    Health { status: status.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), reason: None }
}

/// Whether the process is alive.
#[utoipa::path(get, operation_id = "get_livez", path = "/livez", tag = "operations", responses((status = 200, body = Health, description = "The process is alive")))]
async fn livez() -> Reply<Health> {
    Reply(health("ok"))
}

/// Whether the server is ready: an event sent now would be stored, and no shutdown is in progress.
///
/// Based on the last commit, or on a small write of the same kind if that was over 0.7 s ago.
#[utoipa::path(get, operation_id = "get_readyz", path = "/readyz", tag = "operations", responses((status = 200, body = Health, description = "Ready"),
    (status = 503, body = Health, description = "Not ready")))]
async fn readyz(State(server): State<Server>) -> (StatusCode, Reply<Health>) {
    if server.leaving.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, Reply(health("draining")));
    }
    match server.timeline.ready().await {
        Ok(()) => (StatusCode::OK, Reply(health("ok"))),
        Err(unready) => {
            let health = Health { reason: Some(unready.to_string()), ..health("unavailable") };
            (StatusCode::SERVICE_UNAVAILABLE, Reply(health))
        }
    }
}

/// Metrics in the Prometheus text format.
#[utoipa::path(get, operation_id = "get_metrics", path = "/metrics", tag = "operations", responses((status = 200, description = "Metrics", content_type = "text/plain")))]
async fn metrics(State(server): State<Server>) -> Response {
    let (open, idle) = server.timeline.store().pool_size();
    metrics::gauge!("runreel_database_connections", "state" => "open").set(open);
    metrics::gauge!("runreel_database_connections", "state" => "idle").set(idle as f64);
    metrics::gauge!("runreel_bus_topics").set(server.timeline.bus().topics_count() as f64);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], server.metrics.render()).into_response()
}
