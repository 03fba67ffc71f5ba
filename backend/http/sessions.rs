//! Sessions: list, end, read the log.

use axum::{
    Json as Reply,
    body::Body as Stream,
    extract::State,
    http::{HeaderValue, header},
    response::Response,
};
use futures::StreamExt as _;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Caller, Query, SessionPath},
    handler::routes,
    page::next_cursor,
    problem::Problem,
};
use crate::{
    domain::{
        event::timestamp,
        id::Name,
        principal::{OwnerId, Scope},
    },
    store::{
        self,
        sessions::{EndReason, SessionFilter, SessionRecord},
    },
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show)).routes(routes!(end)).routes(routes!(log))
}

/// A conversation in a chat, between two resets.
#[derive(Debug, Serialize, ToSchema)]
struct Session {
    session_id: String,
    /// The owner's principal key, 64 hexadecimal digits.
    owner_id: String,
    channel: String,
    chat_id: String,
    thread_id: String,
    /// RFC 3339, UTC, microseconds.
    started_at: String,
    /// The last message or answer.
    last_activity_at: String,
    /// Null while it is open. An idle session ends when the user writes again, as of the time it became idle.
    ended_at: Option<String>,
    end_reason: Option<EndReason>,
    /// Messages that were accepted.
    messages: i64,
    /// Answers that were given.
    answers: i64,
}

impl From<SessionRecord> for Session {
    fn from(record: SessionRecord) -> Self {
        Self {
            session_id: record.session_id.to_string(),
            owner_id: record.owner_id.as_str().to_owned(),
            channel: record.channel.to_string(),
            chat_id: record.chat_id.to_string(),
            thread_id: record.thread_id.to_string(),
            started_at: timestamp(record.started_at),
            last_activity_at: timestamp(record.last_activity_at),
            ended_at: record.ended_at.map(timestamp),
            end_reason: record.end_reason,
            messages: record.messages,
            answers: record.answers,
        }
    }
}

/// A page of sessions, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct SessionList {
    sessions: Vec<Session>,
    /// Send it back as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
}

/// List sessions, newest first.
#[utoipa::path(get, operation_id = "list_sessions", path = "/api/sessions", tag = "channels", params(
    ("channel" = Option<String>, Query, description = "Sessions of this channel"),
    ("chat_id" = Option<String>, Query, description = "Sessions of chats with this id"),
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = SessionList, description = "A page"), (status = 400, body = Problem, description = "Invalid")))]
async fn list(State(server): State<Server>, caller: Caller, query: Query) -> Result<Reply<SessionList>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let page = query.page()?;
    let filter = SessionFilter { channel: query.parsed("channel")?, chat_id: query.parsed("chat_id")? };
    let (records, more) = server.timeline.store().sessions().list(owner, &filter, &page).await?;
    let next_cursor = next_cursor(more, records.last().map(|last| (last.started_at, last.session_id.clone())));
    Ok(Reply(SessionList { sessions: records.into_iter().map(Session::from).collect(), next_cursor }))
}

async fn existing(server: &Server, owner: &OwnerId, session: &Name) -> Result<SessionRecord, Problem> {
    server.timeline.store().sessions().get(owner, session).await?.ok_or_else(Problem::not_found)
}

/// Get a session.
#[utoipa::path(get, operation_id = "get_session", path = "/api/sessions/{session_id}", tag = "channels", params(("session_id" = String, Path)),
    responses((status = 200, body = Session, description = "The session"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn show(
    State(server): State<Server>,
    caller: Caller,
    SessionPath(session): SessionPath,
) -> Result<Reply<Session>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    Ok(Reply(existing(&server, owner, &session).await?.into()))
}

/// End a session; the chat's next message begins a new one.
#[utoipa::path(post, operation_id = "end_session", path = "/api/sessions/{session_id}/end", tag = "channels", params(("session_id" = String, Path)),
    responses((status = 200, body = Session, description = "Ended, now or before"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn end(
    State(server): State<Server>,
    caller: Caller,
    SessionPath(session): SessionPath,
) -> Result<Reply<Session>, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.owner();
    let found = existing(&server, owner, &session).await?;
    let config = server.channels.config(&found.channel);
    let thread_per_session = config.is_none_or(|config| config.thread_per_session);
    let now = server.timeline.clock().now();
    let ended = server.timeline.store().sessions().end(owner, &session, thread_per_session, now).await;
    let record = ended.map_err(Problem::of_change)?.ok_or_else(Problem::not_found)?;
    Ok(Reply(record.into()))
}

/// The log of the session's thread, one JSON object a line.
///
/// It belongs to the thread: if a channel keeps one thread for many sessions, it covers all of them.
#[utoipa::path(get, operation_id = "session_log", path = "/api/sessions/{session_id}/log.jsonl", tag = "channels", params(("session_id" = String, Path)),
    responses((status = 200, content_type = "application/x-ndjson", body = String, description = "The lines so far"),
    (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn log(
    State(server): State<Server>,
    caller: Caller,
    SessionPath(session): SessionPath,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner().clone();
    let thread = existing(&server, &owner, &session).await?.thread_id;
    let store = server.timeline.store().clone();
    // A failure of the first page is reported as such; one of a later page aborts the response, which clients notice.
    let first = store.sessions().lines(&owner, &thread, 0).await?;
    let later = futures::stream::try_unfold(first.next, move |next| {
        let (store, owner, thread) = (store.clone(), owner.clone(), thread.clone());
        async move {
            let Some(after) = next else { return Ok(None) };
            let page = store.sessions().lines(&owner, &thread, after).await?;
            Ok::<_, store::Error>(Some((page.text, page.next)))
        }
    });
    let lines = futures::stream::once(std::future::ready(Ok(first.text))).chain(later);
    let mut response = Response::new(Stream::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}
