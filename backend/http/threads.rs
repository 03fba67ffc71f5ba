//! Threads: put, list, get, delete, copy, prune; their runs and messages.

use axum::{
    Json as Reply,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Body, Caller, PRUNE, Query, ThreadPath},
    handler::routes,
    page::next_cursor,
    problem::{Code, Problem},
    run_lists::run_list,
};
use crate::{
    domain::{
        event::timestamp,
        id::{Name, ThreadId, Title},
        json::Json,
        limits::{METADATA_BYTES_MAX, PRUNE_IDS_MAX, TTL_S_MAX},
        principal::{OwnerId, Scope},
    },
    store::{
        prune::{Copied, Pruned},
        threads::{Message, ThreadChange, ThreadRecord, TtlChange},
    },
    threads::{Strategy, Threads},
    wire::{
        runs::RunList,
        threads::{Thread, ThreadList},
    },
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, put, delete))
        .routes(routes!(copy))
        .routes(routes!(prune))
        .route(PRUNE, get(show).put(put).delete(delete)) // the thread of that name
        .routes(routes!(runs))
        .routes(routes!(messages))
}

fn shown(record: ThreadRecord, threads: &Threads) -> Thread {
    Thread {
        expires_at: threads.expires_at(&record).map(timestamp),
        stream_url: format!("/api/stream/threads/{}", record.thread_id),
        thread_id: record.thread_id.as_str().to_owned(),
        owner_id: record.owner_id.as_str().to_owned(),
        metadata: record.metadata,
        ttl_s: record.ttl_s,
        latest_checkpoint_id: record.latest_checkpoint_id.map(|id| id.as_str().to_owned()),
        created_at: timestamp(record.created_at),
        updated_at: timestamp(record.updated_at),
    }
}

/// List threads, newest first.
#[utoipa::path(get, operation_id = "list_threads", path = "/api/threads", tag = "threads", params(
    ("q" = Option<String>, Query, description = "Text in the id"),
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = ThreadList, description = "A page"), (status = 400, body = Problem, description = "Invalid")))]
async fn list(State(server): State<Server>, caller: Caller, query: Query) -> Result<Reply<ThreadList>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let page = query.page()?;
    let search = query.parsed::<Title>("q")?;
    let store = server.threads.store();
    let search = search.as_ref().map(Title::as_str);
    let (records, more) = store.threads().list(owner, search, &page).await?;
    let next_cursor = next_cursor(more, records.last().map(|last| (last.created_at, last.thread_id.clone())));
    let threads = records.into_iter().map(|record| shown(record, &server.threads)).collect();
    Ok(Reply(ThreadList { threads, next_cursor }))
}

/// Get a thread.
#[utoipa::path(get, operation_id = "get_thread", path = "/api/threads/{thread_id}", tag = "threads", params(("thread_id" = String, Path)),
    responses((status = 200, body = Thread, description = "The thread"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn show(
    State(server): State<Server>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
) -> Result<Reply<Thread>, Problem> {
    let owner = caller.needs_thread(Scope::Read, &thread)?.owner();
    Ok(Reply(shown(existing(&server, owner, &thread).await?, &server.threads)))
}

async fn existing(server: &Server, owner: &OwnerId, thread: &ThreadId) -> Result<ThreadRecord, Problem> {
    server.threads.store().threads().get(owner, thread).await?.ok_or_else(Problem::not_found)
}

/// What to change in a thread; absent members stay unchanged.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutThread {
    /// A JSON object of at most 64 KiB.
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>)]
    metadata: Option<Json>,
    /// Seconds from 1 to 315 360 000; 0 for never expiring, null for the server's default.
    #[serde(default, rename = "ttl_s", deserialize_with = "ttl_change")]
    #[schema(value_type = Option<i64>)]
    ttl: TtlChange,
}

/// Distinguishes a member that is null from one that is absent.
fn ttl_change<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<TtlChange, D::Error> {
    Ok(Option::deserialize(deserializer)?.map_or(TtlChange::Clear, TtlChange::To))
}

/// Create a thread, or change one.
#[utoipa::path(put, operation_id = "put_thread", path = "/api/threads/{thread_id}", tag = "threads", params(("thread_id" = String, Path)),
    request_body(content = Option<PutThread>), responses((status = 201, description = "Created", body = Thread),
    (status = 200, description = "Already exists", body = Thread), (status = 400, body = Problem, description = "Invalid")))]
async fn put(
    State(server): State<Server>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    body: Body,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.owner();
    let PutThread { metadata, ttl } = body.json()?;
    if let Some(metadata) = &metadata {
        check_metadata(metadata)?;
    }
    if matches!(ttl, TtlChange::To(ttl_s) if !(0..=TTL_S_MAX).contains(&ttl_s)) {
        let detail = format!("a time to live must be 0 to {TTL_S_MAX} seconds");
        return Err(Problem::new(Code::InvalidRequest, detail).field("ttl_s"));
    }
    let change = ThreadChange { metadata, ttl };
    let created = server.threads.store().threads().put(owner, &thread, &change, server.threads.now()).await;
    let created = created.map_err(Problem::of_change)?;
    let thread = shown(existing(&server, owner, &thread).await?, &server.threads);
    Ok((created_or_ok(created), Reply(thread)).into_response())
}

pub(super) fn created_or_ok(created: bool) -> StatusCode {
    if created { StatusCode::CREATED } else { StatusCode::OK }
}

/// Metadata must be an object within its bound.
pub(super) fn check_metadata(metadata: &Json) -> Result<(), Problem> {
    if metadata.as_str().len() > METADATA_BYTES_MAX {
        let detail = format!("metadata may have at most {METADATA_BYTES_MAX} bytes");
        return Err(Problem::new(Code::TooLarge, detail).field("metadata"));
    }
    if metadata.as_str().starts_with('{') {
        return Ok(());
    }
    Err(Problem::new(Code::InvalidRequest, "metadata must be an object").field("metadata"))
}

/// Delete a thread with its checkpoints. Its runs stay.
#[utoipa::path(delete, operation_id = "delete_thread", path = "/api/threads/{thread_id}", tag = "threads", params(("thread_id" = String, Path)),
    responses((status = 204, description = "Deleted"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn delete(
    State(server): State<Server>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
) -> Result<StatusCode, Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    let gone = server.threads.delete(owner, &[thread]).await.map_err(Problem::of_change)?;
    if gone.threads == 0 { Err(Problem::not_found()) } else { Ok(StatusCode::NO_CONTENT) }
}

/// Where a copy goes.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CopyThread {
    /// A thread without checkpoints of its own, or one that does not exist yet.
    #[schema(value_type = String)]
    to: ThreadId,
}

/// Copy a thread's metadata, time to live, checkpoints and writes into another thread.
#[utoipa::path(post, operation_id = "copy_thread", path = "/api/threads/{thread_id}/copy", tag = "threads", params(("thread_id" = String, Path)),
    request_body = CopyThread, responses((status = 201, description = "The copy", body = Thread), (status = 200, description = "The copy; the thread already existed", body = Thread),
    (status = 404, body = Problem, description = "Not found, or of another owner"), (status = 409, body = Problem, description = "`thread_exists`")))]
async fn copy(
    State(server): State<Server>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    body: Body,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.owner();
    let CopyThread { to } = body.json()?;
    if to == thread {
        return Err(Problem::new(Code::InvalidRequest, "a thread cannot be copied into itself").field("to"));
    }
    let copied = server.threads.store().threads().copy(owner, &thread, &to, server.threads.now()).await;
    match copied.map_err(Problem::of_change)? {
        Copied::Absent => Err(Problem::not_found()),
        Copied::Taken => Err(Problem::new(Code::ThreadExists, "the target thread has other checkpoints")
            .field("to")
            .hint("copy to a thread that does not exist yet")),
        Copied::Done { created } => {
            let copy = shown(existing(&server, owner, &to).await?, &server.threads);
            Ok((created_or_ok(created), Reply(copy)).into_response())
        }
    }
}

/// Which threads to prune, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Prune {
    /// At most 1 000.
    #[schema(value_type = Vec<String>)]
    thread_ids: Vec<ThreadId>,
    strategy: Strategy,
}

/// How much was removed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Removed {
    threads: i64,
    checkpoints: i64,
    writes: i64,
    blobs: i64,
}

impl From<Pruned> for Removed {
    fn from(gone: Pruned) -> Self {
        let Pruned { threads, checkpoints, writes, blobs } = gone;
        Self { threads, checkpoints, writes, blobs }
    }
}

/// Prune threads: keep only their newest checkpoints, or delete them.
#[utoipa::path(post, operation_id = "prune_threads", path = "/api/threads/prune", tag = "threads", request_body = Prune,
    responses((status = 200, body = Removed, description = "What was removed"), (status = 413, body = Problem, description = "Too many ids")))]
async fn prune(State(server): State<Server>, caller: Caller, body: Body) -> Result<Reply<Removed>, Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    let Prune { thread_ids, strategy } = body.json()?;
    if thread_ids.len() > PRUNE_IDS_MAX {
        return Err(Problem::new(Code::TooLarge, format!("at most {PRUNE_IDS_MAX} ids")).field("thread_ids"));
    }
    Ok(Reply(server.threads.prune(owner, &thread_ids, strategy).await.map_err(Problem::of_change)?.into()))
}

/// The runs of a thread, newest first.
#[utoipa::path(get, operation_id = "list_thread_runs", path = "/api/threads/{thread_id}/runs", tag = "threads", params(
    ("thread_id" = String, Path), ("status" = Option<String>, Query, description = "One or more statuses, separated by commas"),
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = RunList, description = "A page"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn runs(
    State(server): State<Server>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    query: Query,
) -> Result<Reply<RunList>, Problem> {
    let owner = caller.needs_thread(Scope::Read, &thread)?.owner();
    existing(&server, owner, &thread).await?;
    run_list(&server, owner, Some(thread), &query).await
}

/// A durable message of one of the thread's runs.
#[derive(Debug, Serialize, ToSchema)]
struct ThreadMessage {
    run_id: uuid::Uuid,
    seq: i64,
    /// The span of the message, when it has one.
    message_id: Option<String>,
    /// `user`, `assistant`, `tool` …: the role given in the message, else `assistant`.
    role: String,
    agent: Option<String>,
    /// Its parts as sent.
    #[schema(value_type = Option<serde_json::Value>)]
    content: Option<Json>,
    /// The text of all parts.
    text: Option<String>,
    /// Only when the message was too large for its event: where the whole is. `content` and `text` are then null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>, required = false)]
    artifact: Option<Json>,
    at: String,
}

impl From<Message> for ThreadMessage {
    fn from(message: Message) -> Self {
        let payload = &message.payload;
        let parts: Option<Vec<serde_json::Value>> = payload.member("content");
        let text = |part: &serde_json::Value| part.get("text").and_then(serde_json::Value::as_str).map(str::to_owned);
        let joined = parts.map(|parts| parts.iter().filter_map(text).collect::<String>());
        Self {
            run_id: message.run_id.uuid(),
            seq: message.seq.get(),
            role: payload
                .member::<Name>("role")
                .map_or_else(|| "assistant".to_owned(), |role| role.as_str().to_owned()),
            text: joined.or_else(|| payload.member("content")).or_else(|| payload.member("text")),
            content: payload.raw_member("content"),
            artifact: payload.raw_member("$artifact").filter(|pointer| pointer.as_str().starts_with('{')),
            message_id: message.message_id,
            agent: message.agent,
            at: timestamp(message.at),
        }
    }
}

/// A page of messages, oldest first.
#[derive(Debug, Serialize, ToSchema)]
struct MessageList {
    messages: Vec<ThreadMessage>,
    /// Send it back as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
}

/// The durable messages of a thread's runs, oldest first.
#[utoipa::path(get, operation_id = "list_messages", path = "/api/threads/{thread_id}/messages", tag = "threads", params(
    ("thread_id" = String, Path), ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = MessageList, description = "A page"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn messages(
    State(server): State<Server>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    query: Query,
) -> Result<Reply<MessageList>, Problem> {
    let owner = caller.needs_thread(Scope::Read, &thread)?.owner();
    existing(&server, owner, &thread).await?;
    let (found, more) = server.threads.store().threads().messages(owner, &thread, &query.page()?).await?;
    let next_cursor = next_cursor(more, found.last().map(|last| (last.run_id, last.seq)));
    Ok(Reply(MessageList { messages: found.into_iter().map(ThreadMessage::from).collect(), next_cursor }))
}
