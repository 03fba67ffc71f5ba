//! Artifacts: upload, list, download.

mod download;
mod import;
mod upload;

use axum::{Json as Reply, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Server,
    extract::{Caller, Query, RunPath},
    problem::{Code, Problem},
};
use crate::{
    artifacts,
    domain::{
        event::timestamp,
        limits::{PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX},
        principal::Scope,
    },
    store::artifacts::Artifact as Record,
    timeline::artifacts::{KeepError, url_of},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(upload::upload, list))
        .routes(routes!(download::download))
        .routes(routes!(import::import))
}

/// Bytes a run has made.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Artifact {
    artifact_id: uuid::Uuid,
    name: String,
    media_type: String,
    /// Bytes.
    size: u64,
    /// Of the content, 64 hexadecimal digits.
    sha256: String,
    /// Where it is read.
    url: String,
}

impl From<Record> for Artifact {
    fn from(record: Record) -> Self {
        Self {
            artifact_id: record.artifact_id.uuid(),
            name: record.name.as_str().to_owned(),
            media_type: record.media_type.as_str().to_owned(),
            size: record.size,
            sha256: record.sha256.to_string(),
            url: url_of(record.artifact_id),
        }
    }
}

/// An artifact in its run.
#[derive(Debug, Serialize, ToSchema)]
struct RunArtifact {
    #[serde(flatten)]
    artifact: Artifact,
    /// The event that tells of it: `artifact.created`, or the one whose payload it is.
    seq: i64,
    /// RFC 3339, UTC, microseconds.
    created_at: String,
}

/// A page of artifacts, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct ArtifactList {
    artifacts: Vec<RunArtifact>,
    /// Send it back as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
}

/// The artifacts of a run, newest first: what was uploaded, and payloads that were too large for their event.
#[utoipa::path(get, operation_id = "list_artifacts", path = "/api/runs/{run_id}/artifacts", tag = "artifacts", params(
    ("run_id" = uuid::Uuid, Path), ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = ArtifactList, description = "A page"), (status = 404, body = Problem, description = "Absent or foreign")))]
async fn list(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    query: Query,
) -> Result<Reply<ArtifactList>, Problem> {
    let owner = caller.needs_run(Scope::Read, run)?.owner();
    server.timeline.context(owner, run).await?.ok_or_else(Problem::not_found)?;
    let limit = query.number("limit", PAGE_ROWS_DEFAULT, 1, PAGE_ROWS_MAX)?;
    let before = |text: &str| text.strip_prefix('a').and_then(|id| id.parse().ok()).ok_or_else(Problem::bad_cursor);
    let before = query.text("cursor").map(before).transpose()?;
    let mut found = server.timeline.store().artifacts(owner, run, before, limit + 1).await?;
    let more = found.len() as i64 > limit;
    found.truncate(usize::try_from(limit).unwrap_or(0));
    let next_cursor = found.last().filter(|_| more).map(|(last, _)| format!("a{}", last.artifact_id));
    let artifacts = found.into_iter().map(|(record, seq)| RunArtifact {
        created_at: timestamp(record.created_at),
        seq: seq.get(),
        artifact: record.into(),
    });
    Ok(Reply(ArtifactList { artifacts: artifacts.collect(), next_cursor }))
}

impl From<artifacts::Error> for Problem {
    fn from(error: artifacts::Error) -> Self {
        use artifacts::Error as E;
        let detail = error.to_string();
        match error {
            E::TooLarge => Self::new(Code::TooLarge, detail),
            E::Busy(full) => Self::busy(full, "uploads or downloads"),
            E::Slow => Self::new(Code::TooSlow, detail).hint("nothing was kept; send it again"),
            E::Full(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "artifact store is full");
                Self::new(Code::StorageFull, detail).hint("nothing was kept; make room and send it again")
            }
            E::Unavailable(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "artifact store unavailable");
                Self::new(Code::StorageUnavailable, detail).hint("nothing was changed; try again after Retry-After")
            }
            E::Damaged => {
                tracing::error!("artifact content missing or of the wrong size");
                Self::new(Code::Internal, detail)
            }
            E::Database(error) => error.into(),
        }
    }
}

impl From<KeepError> for Problem {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Artifact(error) => error.into(),
            KeepError::Emit(error) => error.into(),
            KeepError::OtherArtifact => Self::new(Code::ArtifactExists, error.to_string()).field("artifact_id"),
            KeepError::ToldOtherwise => Self::new(Code::ArtifactExists, error.to_string()).field("event_id"),
            KeepError::OtherEvent => Self::new(Code::InvalidRequest, error.to_string()).field("event_id"),
        }
    }
}
