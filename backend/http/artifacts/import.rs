//! The bytes of artifacts whose events were created on another server.

use axum::{
    Json as Reply,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Artifact,
    upload::{arrive, check_form, media_type},
};
use crate::{
    domain::{
        artifact::{ArtifactId, ArtifactName, Hash},
        id::{EventId, RunId},
        principal::Scope,
    },
    http::{
        Server,
        body::drain,
        extract::{ArtifactPath, Caller, Query, RunPath},
        handler::routes,
        problem::{Code, Problem},
    },
    store::artifacts::Artifact as Record,
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(import))
}

/// Import the bytes of an artifact into a run of the caller, before the event that refers to it.
///
/// The artifact can be read only after an event of the run with this `event_id` refers to it; if none comes, it is
/// removed after about an hour. The same artifact again is stored once.
#[utoipa::path(put, operation_id = "import_artifact", path = "/api/runs/{run_id}/artifacts/{artifact_id}", tag = "artifacts", params(
    ("run_id" = uuid::Uuid, Path), ("artifact_id" = uuid::Uuid, Path), ("name" = String, Query, description = "1–255 characters, no path"),
    ("event_id" = String, Query, description = "Of the event that refers to it"), ("sha256" = String, Query, description = "Of the bytes, 64 hexadecimal digits")),
    request_body(content = String, content_type = "application/octet-stream", description = "The bytes, at most 1 GiB; `Content-Type` is stored as `media_type`"),
    responses((status = 201, body = Artifact, description = "Stored"), (status = 200, body = Artifact, description = "It was stored before"),
    (status = 400, body = Problem, description = "Invalid, or the bytes do not match `sha256`"), (status = 404, body = Problem, description = "Run not found, or of another owner"),
    (status = 409, body = Problem, description = "`artifact_exists`"), (status = 413, body = Problem, description = "Over a limit"),
    (status = 507, body = Problem, description = "`storage_full`: nothing was stored"), (status = 503, body = Problem, description = "`storage_unavailable`, `unavailable`")))]
async fn import(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    ArtifactPath(id): ArtifactPath,
    query: Query,
    request: Request,
) -> Result<(StatusCode, Reply<Artifact>), Problem> {
    caller.needs_run(&server, Scope::Admin, run).await?;
    let owner = caller.needs_all(Scope::Admin)?.owner();
    server.timeline.context(owner, run).await?.ok_or_else(Problem::not_found)?;
    let (head, body) = request.into_parts();
    let mut wanted = match described(run, id, &query, &head.headers) {
        Ok(wanted) => wanted,
        Err(problem) => {
            drain(std::pin::pin!(body.into_data_stream())).await;
            return Err(problem);
        }
    };
    let upload = arrive(&server, owner, &head.headers, body).await?;
    if upload.sha256 != wanted.sha256 {
        return Err(Problem::new(Code::InvalidRequest, "the SHA-256 of the bytes differs").field("sha256"));
    }
    (wanted.size, wanted.created_at) = (upload.size, server.timeline.clock().now());
    let kept = Box::pin(server.timeline.import_artifact(owner, upload, wanted)).await?;
    let status = if kept.already_kept { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Reply(Artifact::from(kept.artifact))))
}

/// The record as known before the first byte; size and time follow.
fn described(run_id: RunId, artifact_id: ArtifactId, query: &Query, headers: &HeaderMap) -> Result<Record, Problem> {
    let missing = |field: &'static str| Problem::new(Code::InvalidRequest, "this parameter is required").field(field);
    check_form(headers)?;
    Ok(Record {
        artifact_id,
        run_id,
        event_id: query.parsed::<EventId>("event_id")?.ok_or_else(|| missing("event_id"))?,
        name: query.parsed::<ArtifactName>("name")?.ok_or_else(|| missing("name"))?,
        media_type: media_type(headers)?,
        size: 0,
        sha256: query.parsed::<Hash>("sha256")?.ok_or_else(|| missing("sha256"))?,
        created_at: chrono::DateTime::UNIX_EPOCH,
    })
}
