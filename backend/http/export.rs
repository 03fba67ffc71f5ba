//! Export and import of a run's log as verifiable lines.

use std::time::Duration;

use axum::{
    Json as Reply,
    body::Body as ReplyBody,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    events::in_time,
    extract::{Body, Caller, RunPath},
    handler::routes,
    problem::{Code, Problem},
    replies,
};
use crate::{
    domain::{
        export::{Piece, RunWriter, Subject},
        id::{RunId, Seq},
        limits::{EMIT_EVENTS_MAX, IMPORT_WAIT_MS_MAX, OWN_PAYLOAD_BYTES_MAX, REPLAY_ROWS},
        principal::{OwnerId, Scope},
    },
    quota::Share,
    store::{
        events::RunPage,
        replica::{Readers, Wanted},
    },
    timeline::{emit::EmitError, import::ImportError},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(export)).routes(routes!(import))
}

/// Export a run: its line, its events up to the current end of the log, and its end with the hash of all of them.
#[utoipa::path(get, operation_id = "export_run", path = "/api/runs/{run_id}/export", tag = "runs", params(("run_id" = uuid::Uuid, Path)),
    responses((status = 200, content_type = "application/x-ndjson", body = String, description = "The lines `run`, `event` …, `end`; complete only if `end` is there"),
    (status = 404, body = Problem, description = "Not found, or of another owner"), (status = 409, body = Problem, description = "`log_incomplete`"), (status = 413, body = Problem, description = "An event is larger than an export may hold")))]
async fn export(State(server): State<Server>, caller: Caller, RunPath(run): RunPath) -> Result<Response, Problem> {
    let owner = caller.needs_run(&server, Scope::Read, run).await?.owner().clone();
    let record = server.timeline.run(&owner, run).await?.ok_or_else(Problem::not_found)?;
    let last = record.head.last_seq;
    let rows = REPLAY_ROWS.min(last.get());
    let wanted = Wanted::After { seq: Seq::ZERO, rows, bytes: None };
    let first = server.readers.page(&owner, run, wanted).await?;
    let first = first.ok_or_else(Problem::not_found)?;
    if first.events.first().is_none_or(|(place, _)| place.seq != Seq::ZERO.next()) {
        let detail = "the beginning of this run's log was removed, and a part of a log cannot be verified";
        return Err(
            Problem::new(Code::LogIncomplete, detail).hint("GET /api/runs/{run_id}/events returns what is left")
        );
    }
    if let Some(seq) = server.timeline.store().events().too_large_answer(&owner, run, OWN_PAYLOAD_BYTES_MAX).await? {
        let detail =
            format!("seq {seq} is an answer of more than {OWN_PAYLOAD_BYTES_MAX} bytes, which no import takes");
        return Err(Problem::new(Code::TooLarge, detail).hint("GET /api/runs/{run_id}/events returns the log"));
    }
    let room = replies::paged(&server, &owner)?;
    let lines = lines(server.readers.clone(), (owner, room), run, Subject::of(&record.context), first, last);
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], ReplyBody::from_stream(lines)).into_response())
}

/// Why an export was aborted; the client only sees that the connection is cut.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    #[error("the log has a gap, or the run was deleted, or the database was restored to an earlier state")]
    Hole,
}

fn lines(
    readers: Readers,
    (owner, room): (OwnerId, Share),
    run: RunId,
    subject: Subject,
    first: RunPage,
    last: Seq,
) -> impl Stream<Item = Result<Bytes, Cut>> + Send {
    let (history, mut page) = (first.history, first);
    async_stream::try_stream! {
        let _room = room;
        let (mut writer, line) = RunWriter::begin(&subject);
        let (mut chunk, mut written) = (BytesMut::from(line.as_bytes()), Seq::ZERO);
        chunk.put_u8(b'\n');
        loop {
            for (place, event) in &page.events {
                let line = writer.event(event).ok_or(Cut::Hole)?;
                chunk.put_slice(line.as_bytes());
                chunk.put_u8(b'\n');
                written = place.seq;
            }
            if written >= last {
                break;
            }
            yield chunk.split().freeze();
            let wanted = REPLAY_ROWS.min(last.get() - written.get());
            let wanted = Wanted::After { seq: written, rows: wanted, bytes: None };
            page = readers.page(&owner, run, wanted).await?.ok_or(Cut::Hole)?;
            if page.events.is_empty() || page.history != history {
                Err(Cut::Hole)?;
            }
        }
        chunk.put_slice(writer.end().as_bytes());
        chunk.put_u8(b'\n');
        yield chunk.freeze();
    }
}

/// The result of an import.
#[derive(Debug, Serialize, ToSchema)]
struct ImportReply {
    run_id: uuid::Uuid,
    /// The last seq of the run's log.
    last_seq: i64,
    /// Events that were not there before.
    stored: usize,
}

/// Import a part of a run: its line as exported, and some of its events with their seqs.
///
/// The parts of a run must be sent in order. Events that are already stored are compared and left unchanged, so a retry
/// is safe.
#[utoipa::path(post, operation_id = "import_run", path = "/api/runs/{run_id}/import", tag = "runs", params(("run_id" = uuid::Uuid, Path)),
    request_body(content = String, content_type = "application/x-ndjson", description = "The line `run`, then lines `event`, at most 5 000 and 8 MiB"),
    responses((status = 200, body = ImportReply, description = "Stored, now or before"), (status = 201, body = ImportReply, description = "The run was created"),
    (status = 400, body = Problem, description = "`invalid_event`: `field` names the line"), (status = 404, body = Problem, description = "The events begin after the end of the caller's run; those of a new run begin at 1"),
    (status = 409, body = Problem, description = "`import_conflict`, `run_exists`, `run_ended`, `invalid_transition`, `artifact_exists`"), (status = 413, body = Problem, description = "Over a limit"),
    (status = 429, body = Problem, description = "`busy`"), (status = 503, body = Problem, description = "`unavailable`, `outcome_unknown`: send it again")))]
async fn import(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    body: Body,
) -> Result<(StatusCode, Reply<ImportReply>), Problem> {
    caller.needs_run(&server, Scope::Admin, run).await?;
    let owner = caller.needs_all(Scope::Admin)?.owner();
    if !body.is_ndjson {
        return Err(Problem::new(Code::UnsupportedMediaType, "an import must be a list of lines")
            .hint("send the header: Content-Type: application/x-ndjson"));
    }
    // An import must not delay others' emits: it waits for its turn, and is parsed where it blocks no request.
    let wait = Duration::from_millis(IMPORT_WAIT_MS_MAX);
    let busy = || Problem::new(Code::Busy, "too many imports are in progress; nothing was done");
    let turn = tokio::time::timeout(wait, server.imports.take(owner, 1)).await;
    let _turn = turn.ok().and_then(Result::ok).ok_or_else(busy)?;
    let piece = read(body, owner.clone()).await?;
    if piece.events.len() > EMIT_EVENTS_MAX {
        return Err(Problem::new(Code::TooLarge, format!("one request may have at most {EMIT_EVENTS_MAX} events")));
    }
    if piece.subject.run_id != run {
        let detail = "the run line names a different run than the path";
        return Err(Problem::new(Code::InvalidRequest, detail).field("run_id"));
    }
    if !run.is_importable(server.timeline.clock().now().timestamp_millis()) {
        let detail = "the time in the run_id is more than ten years in the past or more than a day in the future";
        return Err(Problem::new(Code::InvalidRequest, detail).field("run_id"));
    }
    let done = in_time(async { Ok(Box::pin(server.timeline.import_run(owner, &piece)).await?) }).await?;
    let status = if done.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Reply(ImportReply { run_id: run.uuid(), last_seq: done.last_seq.get(), stored: done.stored })))
}

/// Parses a body outside the tasks that serve requests: one of 8 MiB takes a while.
async fn read(body: Body, owner: OwnerId) -> Result<Piece, Problem> {
    let work = move || {
        let text = std::str::from_utf8(&body.bytes);
        let text = text.map_err(|_| Problem::new(Code::InvalidEvent, "the body is not UTF-8"))?;
        Piece::read(text, &owner).map_err(|(number, fault)| {
            Problem::new(Code::InvalidEvent, format!("line {number}: {fault}")).field(format!("lines[{}]", number - 1))
        })
    };
    let read = tokio::task::spawn_blocking(work).await;
    read.map_err(|_| Problem::new(Code::Internal, "the lines could not be read; nothing was stored"))?
}

impl From<ImportError> for Problem {
    fn from(error: ImportError) -> Self {
        let detail = error.to_string();
        match error {
            ImportError::NotThere => Self::not_found(),
            ImportError::Differs { seq } => {
                let field = if seq == Seq::ZERO { "run".to_owned() } else { format!("seq {seq}") };
                Self::new(Code::ImportConflict, detail)
                    .field(field)
                    .hint("nothing was changed; delete the existing run first")
            }
            ImportError::Refused { refusal, .. } => {
                let code = match refusal {
                    crate::domain::run::Refusal::Ended { .. } => Code::RunEnded,
                    crate::domain::run::Refusal::Transition { .. } => Code::InvalidTransition,
                };
                Self::new(code, detail)
            }
            ImportError::Forged { seq, .. } => Self::new(Code::InvalidEvent, detail).field(format!("seq {seq}")),
            ImportError::TooManyMonths => Self::new(Code::InvalidRequest, detail)
                .field("run_id")
                .hint("nothing was stored; import older runs into another server"),
            ImportError::OtherArtifact { seq } => Self::new(Code::ArtifactExists, detail)
                .field(format!("seq {seq}"))
                .hint("nothing was changed; bytes that no event refers to are removed after an hour"),
            // Another owner's run; the caller's own would have been compared.
            ImportError::Emit(EmitError::RunExists) => Self::new(Code::RunExists, "this id is already in use")
                .field("run_id")
                .hint("a run id is unique on a server, also across owners; import into another server"),
            ImportError::Emit(error) => error.into(),
            ImportError::Store(error) => error.into(),
        }
    }
}
