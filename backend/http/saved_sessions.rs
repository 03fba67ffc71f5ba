//! Saved sessions: save, list, get, import, restore, delete. The rules are those of `saved`.

use std::io;

use axum::{
    Json as Reply,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Body, Caller, Query, SavedPath},
    handler::routes,
    page::next_cursor,
    problem::{Code, Problem},
    threads::created_or_ok,
};
use crate::{
    domain::{
        event::timestamp,
        id::Malformed,
        limits::{SAVED_DESCRIPTION_CHARS_MAX, SAVED_FILE_BYTES_MAX},
        principal::Scope,
        transcript::{SavedName, SavedSession, full::values_in},
    },
    saved::{Entry, Error},
    store::page::Page,
    wire::saved_sessions::{Restore, RestoredThread, SaveThread, Saved, SavedList, UnreadableFile},
};

/// Bodies that are files.
type FileBody = Body<SAVED_FILE_BYTES_MAX>;

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(list, save)).routes(routes!(show, import, delete)).routes(routes!(restore))
}

impl From<Entry> for Saved {
    fn from(entry: Entry) -> Self {
        Self {
            name: entry.name.to_string(),
            description: entry.description,
            created_at: timestamp(entry.created_at),
            updated_at: timestamp(entry.updated_at),
            message_count: entry.message_count,
            first_message: entry.first_message,
            fallback: entry.fallback,
        }
    }
}

/// List saved sessions, by name.
#[utoipa::path(get, operation_id = "list_saved_sessions", path = "/api/saved-sessions", tag = "saved sessions", params(
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = SavedList, description = "A page"), (status = 400, body = Problem, description = "Invalid")))]
async fn list(State(server): State<Server>, caller: Caller, query: Query) -> Result<Reply<SavedList>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let Page { after, limit } = query.page::<SavedName>()?;
    let limit = usize::try_from(limit).unwrap_or(1);
    let listing = server.saved.list(owner).await?;
    let is_first = after.is_none();
    let mut found: Vec<_> = listing
        .sessions
        .into_iter()
        .filter(|entry| after.as_ref().is_none_or(|after| entry.name > *after))
        .take(limit + 1)
        .collect();
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = next_cursor(more, found.last().map(|last| last.name.clone()));
    let saved_sessions = found.into_iter().map(Saved::from).collect();
    let unreadable = listing.unreadable.into_iter().filter(|_| is_first).take(limit).map(|(name, at)| UnreadableFile {
        name,
        line: at.line,
        column: at.column,
        reason: at.reason,
    });
    Ok(Reply(SavedList { unreadable: unreadable.collect(), saved_sessions, next_cursor }))
}

/// Save the current state of a thread, replacing what was saved under the name.
#[utoipa::path(post, operation_id = "save_session", path = "/api/saved-sessions", tag = "saved sessions", request_body = SaveThread,
    responses((status = 201, body = Saved, description = "Saved"), (status = 200, body = Saved, description = "Saved again"),
    (status = 400, body = Problem, description = "Invalid; for a name, the detail has the rule"), (status = 404, body = Problem, description = "Thread not found, or of another owner"),
    (status = 422, body = Problem, description = "`unreadable_session`: what is saved under the name cannot be read")))]
async fn save(State(server): State<Server>, caller: Caller, body: Body) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.owner();
    let SaveThread { name, thread_id, description } = body.json()?;
    let name: SavedName = name.parse().map_err(|rule: Malformed| bad_name(rule.0))?;
    name.check_new().map_err(|rule| bad_name(rule.0))?;
    let long = description.as_ref().is_some_and(|text| text.chars().count() > SAVED_DESCRIPTION_CHARS_MAX);
    if long {
        let detail = format!("a description has at most {SAVED_DESCRIPTION_CHARS_MAX} characters");
        return Err(Problem::new(Code::InvalidRequest, detail).field("description"));
    }
    let (created, session) = server.saved.save(owner, name, &thread_id, description).await?;
    Ok((created_or_ok(created), Reply(Saved::from(session))).into_response())
}

/// A session with all its messages: its file.
#[utoipa::path(get, operation_id = "get_saved_session", path = "/api/saved-sessions/{name}", tag = "saved sessions", params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value, description = "The file"), (status = 400, body = Problem, description = "Invalid name"),
    (status = 404, body = Problem, description = "Not found, or of another owner"), (status = 422, body = Problem, description = "`unreadable_session`, with the line and the reason")))]
async fn show(State(server): State<Server>, caller: Caller, SavedPath(name): SavedPath) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let text = server.saved.read(owner, name).await?.to_text();
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(([json], text).into_response())
}

/// Import a session from its file, replacing what was saved under the name.
#[utoipa::path(put, operation_id = "import_saved_session", path = "/api/saved-sessions/{name}", tag = "saved sessions", params(("name" = String, Path)),
    request_body = serde_json::Value, responses((status = 201, body = Saved, description = "Saved"), (status = 200, body = Saved, description = "Replaced"),
    (status = 400, body = Problem, description = "Invalid; for a file, the detail has the line and the reason"), (status = 413, body = Problem, description = "Over 32 MiB")))]
async fn import(
    State(server): State<Server>,
    caller: Caller,
    SavedPath(name): SavedPath,
    body: FileBody,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.owner();
    name.check_new().map_err(|rule| bad_name(rule.0))?;
    let named = SavedSession::named(&body.bytes).map_err(Error::Refused)?;
    if named.is_some_and(|named| named != name.as_str()) {
        let detail = "the file is of a session with another name";
        return Err(Problem::new(Code::InvalidRequest, detail)
            .field("name")
            .hint("change the name in the file, omit it, or use it in the path"));
    }
    body.check_values(values_in(&body.bytes).iter().map(Vec::as_slice))?;
    let (created, session) = server.saved.import(owner, name, body.bytes.to_vec()).await?;
    Ok((created_or_ok(created), Reply(Saved::from(session))).into_response())
}

/// Delete a session, including one that cannot be read. Threads restored from it stay.
#[utoipa::path(delete, operation_id = "delete_saved_session", path = "/api/saved-sessions/{name}", tag = "saved sessions", params(("name" = String, Path)),
    responses((status = 204, description = "Deleted"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn delete(
    State(server): State<Server>,
    caller: Caller,
    SavedPath(name): SavedPath,
) -> Result<StatusCode, Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    server.saved.delete(owner, name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Create a thread that continues a session.
#[utoipa::path(post, operation_id = "restore_saved_session", path = "/api/saved-sessions/{name}/restore", tag = "saved sessions", params(("name" = String, Path)),
    request_body(content = Option<Restore>), responses((status = 201, body = RestoredThread, description = "The thread"),
    (status = 404, body = Problem, description = "Not found, or of another owner"), (status = 409, body = Problem, description = "`thread_exists`"),
    (status = 422, body = Problem, description = "`unreadable_session`, with the line and the reason")))]
async fn restore(
    State(server): State<Server>,
    caller: Caller,
    SavedPath(name): SavedPath,
    body: Body,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.owner();
    let Restore { thread_id } = body.json()?;
    let thread = server.saved.restore(owner, name, thread_id).await?;
    let restored = RestoredThread {
        stream_url: format!("/api/stream/threads/{}", thread.thread_id),
        thread_id: thread.thread_id.to_string(),
        checkpoint_id: thread.checkpoint_id.to_string(),
        message_count: thread.message_count,
        fallback: thread.fallback,
        session_id: thread.session_id.map(|session| session.to_string()),
    };
    Ok((StatusCode::CREATED, Reply(restored)).into_response())
}

fn bad_name(rule: &str) -> Problem {
    Problem::new(Code::InvalidRequest, rule).field("name")
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::NotFound => Self::not_found(),
            Error::Alike(_) => bad_name(&detail).hint("use that name, or another"),
            Error::Busy => Self::new(Code::Busy, detail).hint("nothing was done; try again after Retry-After"),
            Error::Locked => {
                Self::new(Code::StorageUnavailable, detail).hint("nothing was changed; try again after Retry-After")
            }
            Error::Refused(_) => Self::new(Code::InvalidRequest, detail).hint("fix that line and send the file again"),
            Error::Unreadable(_) => {
                Self::new(Code::UnreadableSession, detail).hint("fix that line in its folder, or delete the session")
            }
            Error::TooLarge(_) => Self::new(Code::TooLarge, detail),
            Error::ThreadTaken => Self::new(Code::ThreadExists, detail)
                .field("thread_id")
                .hint("restore to a thread that does not exist yet, or omit the thread"),
            Error::Store(error) => Self::of_change(error),
            Error::Disk(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the folder of saved sessions cannot be used"
                );
                match error.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                        Self::new(Code::StorageFull, "there is no space for saved sessions")
                            .hint("nothing was changed; free space and try again")
                    }
                    _ => Self::new(Code::StorageUnavailable, detail)
                        .hint("the server's log has the cause: check --sessions-dir and its contents"),
                }
            }
        }
    }
}
