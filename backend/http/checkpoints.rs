//! Checkpoints: put them, put their tasks' writes, read them back. Values are opaque from end to end.

use std::collections::{HashMap, hash_map::Entry};

use axum::{
    Json as Reply,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Body, Caller, CheckpointPath, Query, ThreadPath},
    handler::routes,
    page::next_cursor,
    problem::{Code, Problem},
    replies,
    threads::{Removed, check_metadata, created_or_ok},
};
use crate::{
    domain::{
        checkpoint::{
            Blob, Bytes64, Channel, Channels, Checkpoint, CheckpointId, MadeBy, Namespace, TaskId, TaskPath, Value,
            ValueType, Version,
        },
        event::timestamp,
        id::ThreadId,
        json::Json,
        limits::{CHANNELS_MAX, CHECKPOINT_BODY_BYTES_MAX, PRUNE_IDS_MAX, REPLY_FREE_BYTES},
        principal::{OwnerId, Scope},
    },
    store::{
        self,
        checkpoints::{
            CheckpointFilter, CheckpointsAfter, FoundPage, NewCheckpoint, NewWrites, One, Stored as StoredCheckpoint,
        },
    },
};

/// Bodies that contain values.
type LargeBody = Body<CHECKPOINT_BODY_BYTES_MAX>;

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(latest))
        .routes(routes!(show, put))
        .routes(routes!(put_writes))
        .routes(routes!(list_all))
        .routes(routes!(delete_for_runs))
}

/// A state of a thread.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutCheckpoint {
    /// The namespace (a subgraph's path), default `""`; at most 1024 characters.
    #[serde(default)]
    #[schema(value_type = String)]
    ns: Namespace,
    /// The checkpoint it follows.
    #[schema(value_type = Option<String>)]
    parent_id: Option<CheckpointId>,
    /// The run that made it; when absent, `metadata.run_id` if that is a string.
    #[schema(value_type = Option<String>)]
    run_id: Option<MadeBy>,
    checkpoint: Value,
    /// An object of at most 64 KiB, for filters.
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>)]
    metadata: Option<Json>,
    /// For each channel of the state the version of its value: a string or a number.
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    versions: Channels<Version>,
    /// The new values; a value that exists already is left unchanged.
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, Blob>)]
    blobs: Channels<Blob>,
}

/// The checkpoint that was stored.
#[derive(Debug, Serialize, ToSchema)]
struct PutAnswer {
    #[schema(value_type = String)]
    thread_id: ThreadId,
    #[schema(value_type = String)]
    ns: Namespace,
    #[schema(value_type = String)]
    checkpoint_id: CheckpointId,
    #[schema(value_type = Option<String>)]
    parent_id: Option<CheckpointId>,
    #[schema(value_type = Option<String>)]
    run_id: Option<MadeBy>,
    created_at: String,
}

/// Store a checkpoint. The same id again replaces it.
#[utoipa::path(put, operation_id = "put_checkpoint", path = "/api/threads/{thread_id}/checkpoints/{checkpoint_id}", tag = "checkpoints",
    params(("thread_id" = String, Path), ("checkpoint_id" = String, Path)), request_body = PutCheckpoint,
    responses((status = 201, body = PutAnswer, description = "Stored"), (status = 200, body = PutAnswer, description = "Replaced"),
    (status = 400, body = Problem, description = "Invalid, or `credential_in_body`"), (status = 413, body = Problem, description = "Over 32 MiB")))]
async fn put(
    State(server): State<Server>,
    caller: Caller,
    CheckpointPath(thread_id, checkpoint_id): CheckpointPath,
    body: LargeBody,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.owner();
    let PutCheckpoint { ns, parent_id, run_id, checkpoint, metadata, versions, blobs } = body.json()?;
    for (field, count) in [("versions", versions.0.len()), ("blobs", blobs.0.len())] {
        if count > CHANNELS_MAX {
            return Err(Problem::new(Code::TooLarge, format!("at most {CHANNELS_MAX} channels")).field(field));
        }
    }
    let values = blobs.0.iter().map(|(_, blob)| blob.b.0.as_slice());
    body.check_values(values.chain([checkpoint.b.0.as_slice()]))?;
    let metadata = metadata.unwrap_or_else(Json::empty);
    check_metadata(&metadata)?;
    let run_id = run_id.or_else(|| metadata.member("run_id"));
    let new = NewCheckpoint { ns, checkpoint_id, parent_id, run_id, checkpoint, metadata, versions, blobs };
    let now = server.threads.now();
    let put = server.threads.store().checkpoints().put(owner, &thread_id, &new, now).await;
    let (created, created_at) = put.map_err(Problem::of_change)?;
    let NewCheckpoint { ns, checkpoint_id, parent_id, run_id, .. } = new;
    let answer = PutAnswer { thread_id, ns, checkpoint_id, parent_id, run_id, created_at: timestamp(created_at) };
    Ok((created_or_ok(created), Reply(answer)).into_response())
}

/// The writes of a task of a checkpoint.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutWrites {
    #[serde(default)]
    #[schema(value_type = String)]
    ns: Namespace,
    #[schema(value_type = String)]
    task_id: TaskId,
    #[serde(default)]
    #[schema(value_type = String)]
    task_path: TaskPath,
    /// Whether a write replaces one with the same `task_id` and `idx`. Default `false`.
    #[serde(default)]
    upsert: bool,
    /// At most 10 000.
    writes: Vec<PutWrite>,
}

/// One write.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutWrite {
    /// Its place among the writes of its task; may be negative.
    idx: i32,
    #[schema(value_type = String)]
    channel: Channel,
    #[schema(value_type = String)]
    t: ValueType,
    #[serde(default)]
    #[schema(value_type = String)]
    b: Bytes64,
}

/// How many writes were stored.
#[derive(Debug, Serialize, ToSchema)]
struct Stored {
    stored: u64,
}

/// Store the writes of a task of a checkpoint, also before the checkpoint itself arrives.
#[utoipa::path(put, operation_id = "put_writes", path = "/api/threads/{thread_id}/checkpoints/{checkpoint_id}/writes", tag = "checkpoints",
    params(("thread_id" = String, Path), ("checkpoint_id" = String, Path)), request_body = PutWrites,
    responses((status = 200, body = Stored, description = "Stored"), (status = 400, body = Problem, description = "Invalid, or `credential_in_body`"),
    (status = 413, body = Problem, description = "Over 32 MiB")))]
async fn put_writes(
    State(server): State<Server>,
    caller: Caller,
    CheckpointPath(thread_id, checkpoint_id): CheckpointPath,
    body: LargeBody,
) -> Result<Reply<Stored>, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.owner();
    let PutWrites { ns, task_id, task_path, upsert, writes } = body.json()?;
    if writes.len() > CHANNELS_MAX {
        return Err(Problem::new(Code::TooLarge, format!("at most {CHANNELS_MAX} writes")).field("writes"));
    }
    body.check_values(writes.iter().map(|write| write.b.0.as_slice()))?;
    // An `idx` given twice is treated like a stored one: with `upsert` the last write wins, else the first stays.
    let mut places: HashMap<i32, PutWrite> = HashMap::new();
    for write in writes {
        match places.entry(write.idx) {
            Entry::Occupied(mut place) if upsert => drop(place.insert(write)),
            Entry::Occupied(_) => {}
            Entry::Vacant(place) => drop(place.insert(write)),
        }
    }
    let value = |(idx, write): (i32, PutWrite)| (idx, write.channel, Value { t: write.t, b: write.b });
    let writes = places.into_iter().map(value).collect();
    let new = NewWrites { ns, checkpoint_id, task_id, task_path, upsert, writes };
    let stored = server.threads.store().checkpoints().put_writes(owner, &thread_id, &new, server.threads.now()).await;
    Ok(Reply(Stored { stored: stored.map_err(Problem::of_change)? }))
}

/// Get a checkpoint.
#[utoipa::path(get, operation_id = "get_checkpoint", path = "/api/threads/{thread_id}/checkpoints/{checkpoint_id}", tag = "checkpoints",
    params(("thread_id" = String, Path), ("checkpoint_id" = String, Path), ("ns" = Option<String>, Query, description = "Default `\"\"`")),
    responses((status = 200, body = Checkpoint, description = "The checkpoint"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn show(
    State(server): State<Server>,
    caller: Caller,
    CheckpointPath(thread, checkpoint): CheckpointPath,
    query: Query,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let ns = query.parsed::<Namespace>("ns")?.unwrap_or_default();
    one(&server, owner, One { thread: &thread, ns: &ns, checkpoint_id: Some(&checkpoint), run_id: None }).await
}

/// Get the newest checkpoint, of the thread or of one run in it.
#[utoipa::path(get, operation_id = "get_latest_checkpoint", path = "/api/threads/{thread_id}/checkpoints/latest", tag = "checkpoints", params(
    ("thread_id" = String, Path), ("ns" = Option<String>, Query, description = "Default `\"\"`"),
    ("run_id" = Option<String>, Query, description = "The newest one made by this run")),
    responses((status = 200, body = Checkpoint, description = "The checkpoint"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn latest(
    State(server): State<Server>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    query: Query,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let ns = query.parsed::<Namespace>("ns")?.unwrap_or_default();
    let run = query.parsed::<MadeBy>("run_id")?;
    one(&server, owner, One { thread: &thread, ns: &ns, checkpoint_id: None, run_id: run.as_ref() }).await
}

/// A checkpoint. For a large one, memory is reserved before it is read.
async fn one(server: &Server, owner: &OwnerId, wanted: One<'_>) -> Result<Response, Problem> {
    let checkpoints = server.threads.store().checkpoints();
    let bytes = match checkpoints.get(owner, &wanted, REPLY_FREE_BYTES).await?.ok_or_else(Problem::not_found)? {
        StoredCheckpoint::Whole(checkpoint) => return Ok(Reply(checkpoint).into_response()),
        StoredCheckpoint::Larger(bytes) => bytes,
    };
    let room = replies::room_for(server, owner, bytes).await?;
    match checkpoints.get(owner, &wanted, bytes).await?.ok_or_else(Problem::not_found)? {
        StoredCheckpoint::Whole(checkpoint) => replies::within(room, bytes, checkpoint).await,
        StoredCheckpoint::Larger(_) => Err(store::Error::Busy.into()),
    }
}

/// A page of checkpoints, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct CheckpointList {
    checkpoints: Vec<Checkpoint>,
    /// Send it back as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
}

/// List a thread's checkpoints, newest first.
#[utoipa::path(get, operation_id = "list_checkpoints", path = "/api/threads/{thread_id}/checkpoints", tag = "checkpoints", params(
    ("thread_id" = String, Path), ("ns" = Option<String>, Query, description = "Only this namespace; `\"\"` is the root"),
    ("before" = Option<String>, Query, description = "Older than this checkpoint"),
    ("run_id" = Option<String>, Query, description = "Made by this run"),
    ("filter" = Option<String>, Query, description = "A JSON object that the metadata contains"),
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = CheckpointList, description = "A page"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn list(
    State(server): State<Server>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    query: Query,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let filter = filter(Some(thread.clone()), &query)?;
    let found = server.threads.store().checkpoints().find(owner, &filter, &query.page()?).await?;
    if found.is_empty() && server.threads.store().threads().get(owner, &thread).await?.is_none() {
        return Err(Problem::not_found());
    }
    page(&server, owner, &found).await
}

/// List the checkpoints of all threads, newest first.
#[utoipa::path(get, operation_id = "list_all_checkpoints", path = "/api/checkpoints", tag = "checkpoints", params(
    ("ns" = Option<String>, Query, description = "Only this namespace; `\"\"` is the root"),
    ("before" = Option<String>, Query, description = "Older than this checkpoint"),
    ("run_id" = Option<String>, Query, description = "Made by this run"),
    ("filter" = Option<String>, Query, description = "A JSON object that the metadata contains"),
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = CheckpointList, description = "A page"), (status = 400, body = Problem, description = "Invalid")))]
async fn list_all(State(server): State<Server>, caller: Caller, query: Query) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let found = server.threads.store().checkpoints().find(owner, &filter(None, &query)?, &query.page()?).await?;
    page(&server, owner, &found).await
}

fn filter(thread_id: Option<ThreadId>, query: &Query) -> Result<CheckpointFilter, Problem> {
    let wrong = |rule: String| Problem::new(Code::InvalidRequest, rule).field("filter");
    let metadata = query.text("filter").filter(|text| !text.is_empty()).map(Json::parse).transpose();
    let metadata = metadata.map_err(|flaw| wrong(flaw.to_string()))?;
    if metadata.as_ref().is_some_and(|filter| !filter.as_str().starts_with('{')) {
        return Err(wrong("the filter must be a JSON object".to_owned()));
    }
    Ok(CheckpointFilter {
        thread_id,
        // An empty one is the root; without one, all namespaces.
        ns: query.text("ns").map(|_| query.parsed("ns").map(Option::unwrap_or_default)).transpose()?,
        before: query.parsed("before")?,
        run_id: query.parsed("run_id")?,
        metadata,
    })
}

/// A page. For a large one, memory is reserved before it is read.
async fn page(server: &Server, owner: &OwnerId, found: &FoundPage) -> Result<Response, Problem> {
    let bytes = found.bytes();
    let room = match bytes {
        0..=REPLY_FREE_BYTES => None,
        _ => Some(replies::room_for(server, owner, bytes).await?),
    };
    let checkpoints = server.threads.store().checkpoints().read(owner, found).await?;
    if checkpoints.is_empty() && found.has_more {
        // All of them were removed in the meantime; an empty page would mean that the list ends here.
        return Err(store::Error::Busy.into());
    }
    let next_cursor = next_cursor(found.has_more, checkpoints.last().map(CheckpointsAfter::from));
    let page = CheckpointList { checkpoints, next_cursor };
    match room {
        Some(room) => replies::within(room, bytes, page).await,
        None => Ok(Reply(page).into_response()),
    }
}

/// The runs whose checkpoints to remove.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ForRuns {
    /// At most 1 000.
    #[schema(value_type = Vec<String>)]
    run_ids: Vec<MadeBy>,
}

/// Remove the checkpoints that these runs made, with their writes.
#[utoipa::path(post, operation_id = "delete_checkpoints_for_runs", path = "/api/checkpoints/delete-for-runs", tag = "checkpoints",
    request_body = ForRuns, responses((status = 200, body = Removed, description = "What was removed"), (status = 413, body = Problem, description = "Too many ids")))]
async fn delete_for_runs(State(server): State<Server>, caller: Caller, body: Body) -> Result<Reply<Removed>, Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    let ForRuns { run_ids } = body.json()?;
    if run_ids.len() > PRUNE_IDS_MAX {
        return Err(Problem::new(Code::TooLarge, format!("at most {PRUNE_IDS_MAX} ids")).field("run_ids"));
    }
    Ok(Reply(server.threads.delete_for_runs(owner, &run_ids).await.map_err(Problem::of_change)?.into()))
}
