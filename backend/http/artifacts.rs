//! Artifacts: upload, list, download.

mod download;
mod import;
mod upload;

use axum::{Json as Reply, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Caller, Query, RunPath},
    handler::routes,
    page::next_cursor,
    problem::{Code, Problem},
};
use crate::{
    artifacts,
    domain::{event::timestamp, id::Seq, principal::Scope},
    store::artifacts::Artifact as Record,
    timeline::artifacts::{KeepError, url_of},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .merge(upload::routes())
        .routes(routes!(list))
        .routes(routes!(list_all))
        .merge(download::routes())
        .merge(import::routes())
}

/// Bytes that a run has produced.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Artifact {
    artifact_id: uuid::Uuid,
    name: String,
    media_type: String,
    /// Bytes.
    size: u64,
    /// Of the content, 64 hexadecimal digits.
    sha256: String,
    /// Where to read it.
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
    /// The event that refers to it: `artifact.created`, or the one whose payload it is.
    seq: i64,
    /// RFC 3339, UTC, microseconds.
    created_at: String,
}

impl RunArtifact {
    fn of(record: Record, seq: Seq) -> Self {
        Self { created_at: timestamp(record.created_at), seq: seq.get(), artifact: record.into() }
    }
}

/// A page of artifacts, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct ArtifactList {
    artifacts: Vec<RunArtifact>,
    /// Send it back as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
}

/// List the artifacts of a run, newest first: uploads, and payloads that were too large for their event.
#[utoipa::path(get, operation_id = "list_artifacts", path = "/api/runs/{run_id}/artifacts", tag = "artifacts", params(
    ("run_id" = uuid::Uuid, Path), ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = ArtifactList, description = "A page"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn list(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    query: Query,
) -> Result<Reply<ArtifactList>, Problem> {
    let owner = caller.needs_run(&server, Scope::Read, run).await?.owner();
    server.timeline.context(owner, run).await?.ok_or_else(Problem::not_found)?;
    let (found, more) = server.timeline.store().artifacts().list(owner, run, &query.page()?).await?;
    let next_cursor = next_cursor(more, found.last().map(|last| last.artifact.artifact_id));
    let artifacts = found.into_iter().map(|listed| RunArtifact::of(listed.artifact, listed.seq));
    Ok(Reply(ArtifactList { artifacts: artifacts.collect(), next_cursor }))
}

/// An artifact in the list of all runs.
#[derive(Debug, Serialize, ToSchema)]
struct OwnedArtifact {
    #[serde(flatten)]
    artifact: RunArtifact,
    run_id: uuid::Uuid,
    run_title: Option<String>,
    agent: Option<String>,
}

/// A page of the artifacts of all runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct OwnedArtifactList {
    artifacts: Vec<OwnedArtifact>,
    /// Send it back as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
}

/// List the artifacts of all runs, newest first.
#[utoipa::path(get, operation_id = "list_all_artifacts", path = "/api/artifacts", tag = "artifacts", params(
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = OwnedArtifactList, description = "A page"), (status = 403, body = Problem, description = "`forbidden`")))]
async fn list_all(
    State(server): State<Server>,
    caller: Caller,
    query: Query,
) -> Result<Reply<OwnedArtifactList>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let (found, more) = server.timeline.store().artifacts().list_all(owner, &query.page()?).await?;
    let next_cursor = next_cursor(more, found.last().map(|last| last.artifact.artifact_id));
    let artifacts = found.into_iter().map(|listed| OwnedArtifact {
        run_id: listed.artifact.run_id.uuid(),
        run_title: listed.run_title,
        agent: listed.agent.map(|agent| agent.as_str().to_owned()),
        artifact: RunArtifact::of(listed.artifact, listed.seq),
    });
    Ok(Reply(OwnedArtifactList { artifacts: artifacts.collect(), next_cursor }))
}

impl From<artifacts::Error> for Problem {
    fn from(error: artifacts::Error) -> Self {
        use artifacts::Error as E;
        let detail = error.to_string();
        match error {
            E::TooLarge => Self::new(Code::TooLarge, detail),
            E::Busy(full) => Self::busy(full, "uploads or downloads"),
            E::Slow => Self::new(Code::TooSlow, detail).hint("nothing was stored; send it again"),
            E::Full(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "artifact store is full");
                Self::new(Code::StorageFull, detail).hint("nothing was stored; free space and send it again")
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
