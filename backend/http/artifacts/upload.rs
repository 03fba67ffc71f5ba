//! Uploads: a body is streamed into the artifact store.

use std::pin::Pin;

use axum::{
    Json as Reply,
    body::{Body, BodyDataStream, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt as _, stream};
use utoipa_axum::router::OpenApiRouter;

use super::Artifact;
use crate::{
    artifacts::{Broken, Upload},
    domain::{
        artifact::{ArtifactName, MediaType},
        context::RunContext,
        id::{EventId, Malformed},
        interrupt::OWN_EVENT_IDS,
        limits::ARTIFACT_BYTES_MAX,
        principal::{OwnerId, Scope},
        run::Refusal,
    },
    http::{
        Server,
        body::{drain, within_rate},
        credential::{CredentialGuard, Scan},
        extract::{Caller, Query, RunPath},
        handler::routes,
        problem::{Code, Problem},
    },
    timeline::{
        artifacts::{Draft, url_of},
        emit::EmitError,
    },
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(upload))
}

/// Upload an artifact: the raw body, streamed.
///
/// The reply is sent when the bytes are durable and `artifact.created` is committed. With an `event_id` a retry is
/// safe: it is answered with 200 and the result of the first request.
#[utoipa::path(post, operation_id = "upload_artifact", path = "/api/runs/{run_id}/artifacts", tag = "artifacts", params(
    ("run_id" = uuid::Uuid, Path), ("name" = String, Query, description = "1–255 characters, no path"),
    ("event_id" = Option<String>, Query, description = "Of the `artifact.created`; makes a retry safe"),
    ("span_id" = Option<String>, Query, description = "Of the `artifact.created`"),
    ("parent_span_id" = Option<String>, Query, description = "The span it was created in")),
    request_body(content = String, content_type = "application/octet-stream", description = "The bytes, at most 1 GiB; `Content-Type` is stored as `media_type`"),
    responses((status = 201, body = Artifact, description = "Stored; `Location` names it"), (status = 200, body = Artifact, description = "It was stored before"),
    (status = 400, body = Problem, description = "Invalid"), (status = 404, body = Problem, description = "Not found, or of another owner"),
    (status = 409, body = Problem, description = "`run_ended`"), (status = 413, body = Problem, description = "Over a limit"),
    (status = 507, body = Problem, description = "`storage_full`: nothing was stored"), (status = 503, body = Problem, description = "`storage_unavailable`, `unavailable`, `outcome_unknown`")))]
async fn upload(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let owner = caller.needs_run(&server, Scope::Emit, run).await?.owner();
    let context = server.timeline.context(owner, run).await?.ok_or_else(Problem::not_found)?;
    let (head, body) = request.into_parts();
    let draft = match accept(&server, &context, &query, &head.headers).await {
        Ok(draft) => draft,
        Err(problem) => {
            drain(std::pin::pin!(body.into_data_stream())).await;
            return Err(problem);
        }
    };
    let upload = arrive(&server, owner, &head.headers, body).await?;
    // The run may have ended while the bytes arrived; then they are discarded.
    check_live(&server, &context, draft.event_id.as_ref()).await?;
    let kept = Box::pin(server.timeline.keep_artifact(&context, upload, draft)).await?;
    let status = if kept.already_kept { StatusCode::OK } else { StatusCode::CREATED };
    let location = HeaderValue::from_str(&url_of(kept.artifact.artifact_id));
    let mut response = (status, Reply(Artifact::from(kept.artifact))).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Checks before the first byte.
async fn accept(server: &Server, context: &RunContext, query: &Query, headers: &HeaderMap) -> Result<Draft, Problem> {
    let invalid = |field: &'static str, rule: &str| Problem::new(Code::InvalidRequest, rule).field(field);
    let name: Option<ArtifactName> = query.parsed("name")?;
    let name = name.ok_or_else(|| invalid("name", "an artifact needs a name: ?name=report.txt"))?;
    let media_type = media_type(headers)?;
    let event_id: Option<EventId> = query.parsed("event_id")?;
    if event_id.as_ref().is_some_and(|id| id.as_str().starts_with(OWN_EVENT_IDS)) {
        return Err(invalid("event_id", "event ids that begin with runreel: are reserved for the server"));
    }
    let (span_id, parent_span_id) = (query.parsed("span_id")?, query.parsed("parent_span_id")?);
    check_form(headers)?;
    within_rate(server, &context.owner_id)?;
    check_live(server, context, event_id.as_ref()).await?;
    Ok(Draft { name, media_type, span_id, parent_span_id, event_id })
}

/// Rejects what cannot be stored as sent.
pub(super) fn check_form(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let detail = "the bytes are stored as sent: send them without a Content-Encoding";
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > ARTIFACT_BYTES_MAX) {
        return Err(crate::artifacts::Error::TooLarge.into());
    }
    Ok(())
}

/// The media type that the sender declares.
pub(super) fn media_type(headers: &HeaderMap) -> Result<MediaType, Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(MediaType::trusted("application/octet-stream"));
    };
    let read = value.to_str().unwrap_or_default().parse();
    read.map_err(|rule: Malformed| Problem::new(Code::InvalidRequest, rule.0).field("Content-Type"))
}

/// Streams a body into the artifact store as it arrives.
pub(super) async fn arrive(
    server: &Server,
    owner: &OwnerId,
    headers: &HeaderMap,
    body: Body,
) -> Result<Upload, Problem> {
    let mut bytes = std::pin::pin!(body.into_data_stream());
    let seen = scanned(bytes.as_mut(), CredentialGuard::of(headers, server));
    match server.timeline.artifacts().receive(owner, seen).await {
        Ok(upload) => {
            server.received.used(owner, usize::try_from(upload.size).unwrap_or(usize::MAX));
            Ok(upload)
        }
        Err(broken) => {
            drain(bytes.as_mut()).await;
            Err(match broken {
                Broken::Source(problem) => problem,
                Broken::Store(error) => error.into(),
            })
        }
    }
}

/// Rejects an upload to a run that has ended, unless it repeats one that was stored.
async fn check_live(server: &Server, context: &RunContext, event: Option<&EventId>) -> Result<(), Problem> {
    let (owner, run) = (&context.owner_id, context.run_id);
    let record = server.timeline.run(owner, run).await?.ok_or_else(Problem::not_found)?;
    let status = record.head.status;
    if !status.is_terminal() {
        return Ok(());
    }
    if let Some(event) = event
        && server.timeline.store().artifacts().of_event(owner, run, event).await?.is_some()
    {
        return Ok(());
    }
    Err(EmitError::Refused(Refusal::Ended { status }).into())
}

/// Passes on the body's bytes, and fails if they contain a credential.
fn scanned(
    bytes: Pin<&mut BodyDataStream>,
    guard: CredentialGuard,
) -> impl Stream<Item = Result<Bytes, Problem>> + Send {
    let mut scan = Scan::new(guard);
    let end = stream::once(std::future::ready(None));
    bytes.map(Some).chain(end).filter_map(move |bytes| {
        let checked = match bytes {
            Some(Ok(bytes)) => Some(scan.take(&bytes).map(|()| bytes)),
            Some(Err(_)) => Some(Err(Problem::new(Code::InvalidRequest, "the body ended early"))),
            None => scan.finish().err().map(Err),
        };
        std::future::ready(checked)
    })
}
