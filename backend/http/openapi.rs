//! The description of the API, generated from the handlers. The page that shows it is one of the UI's files (`ui`).

use axum::{Router, http::header, routing::get};
use bytes::Bytes;
use utoipa::{
    OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
};

use super::{Server, index, problem};
use crate::wire::events::RunEvent;

/// What is not derived from the handlers.
#[derive(OpenApi)]
#[openapi(
    info(title = "Runreel", description = "A durable, gap-free, SQL-queryable log of AI-agent runs, followed live.",
         license(name = "Apache-2.0", identifier = "Apache-2.0")),
    components(schemas(problem::Problem, problem::Code, RunEvent, index::EventRow)),
    tags((name = "runs", description = "Runs and their state"), (name = "events", description = "The log"),
         (name = "streams", description = "The log, live (`text/event-stream`)"), (name = "operations", description = "Health and metrics")))]
struct Document;

pub(super) fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
    let bearer = bearer.description(Some("An API token (`rr_…`) or a JWT. Not needed with `--auth off`."));
    let schemes = document.components.get_or_insert_default();
    schemes.add_security_scheme("token", SecurityScheme::Http(bearer.build()));
    // Either nothing or a token, depending on the server's settings.
    document.security = Some(vec![SecurityRequirement::default(), SecurityRequirement::new("token", [""; 0])]);
    document
}

pub(super) fn routes(document: &utoipa::openapi::OpenApi) -> Router<Server> {
    // All readers share one copy, however slow they are.
    let document = Bytes::from(serde_json::to_vec(document).unwrap_or_default());
    let document = move || std::future::ready(([(header::CONTENT_TYPE, "application/json")], document.clone()));
    Router::new().route("/openapi.json", get(document))
}
