//! Checkpoints: put them, put what their tasks write, read them back. Values are opaque from end to end.

use std::collections::{HashMap, hash_map::Entry};

use axum::{
    Json as Reply,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Server,
    extract::{Body, Caller, CheckpointPath, Query, ThreadPath},
    page::next_cursor,
    problem::{Code, Problem},
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
        limits::{CHANNELS_MAX, CHECKPOINT_BODY_BYTES_MAX, PRUNE_IDS_MAX},
        principal::{OwnerId, Scope},
    },
    store::checkpoints::{CheckpointFilter, CheckpointsAfter, NewCheckpoint, NewWrites},
};

/// Bodies that carry values.
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
    // A place named twice goes by the rule for one that is taken: the last one wins, or the first one stays.
    let mut places: HashMap<i32, PutWrite> = HashMap::new();
    for write in writes {
        match places.entry(write.idx) {
            Entry::Occupied(mut taken) if upsert => drop(taken.insert(write)),
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => drop(free.insert(write)),
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
) -> Result<Reply<Checkpoint>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let ns = query.parsed::<Namespace>("ns")?.unwrap_or_default();
    let found = server.threads.store().checkpoints().get(owner, &thread, &ns, Some(&checkpoint), None).await?;
    Ok(Reply(found.ok_or_else(Problem::not_found)?))
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
) -> Result<Reply<Checkpoint>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let ns = query.parsed::<Namespace>("ns")?.unwrap_or_default();
    let run = query.parsed::<MadeBy>("run_id")?;
    let found = server.threads.store().checkpoints().get(owner, &thread, &ns, None, run.as_ref()).await?;
    Ok(Reply(found.ok_or_else(Problem::not_found)?))
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
) -> Result<Reply<CheckpointList>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let page = page(&server, owner, Some(thread.clone()), &query).await?;
    if page.checkpoints.is_empty() && server.threads.store().threads().get(owner, &thread).await?.is_none() {
        return Err(Problem::not_found());
    }
    Ok(Reply(page))
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
async fn list_all(
    State(server): State<Server>,
    caller: Caller,
    query: Query,
) -> Result<Reply<CheckpointList>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    Ok(Reply(page(&server, owner, None, &query).await?))
}

async fn page(
    server: &Server,
    owner: &OwnerId,
    thread_id: Option<ThreadId>,
    query: &Query,
) -> Result<CheckpointList, Problem> {
    let page = query.page()?;
    let wrong = |rule: String| Problem::new(Code::InvalidRequest, rule).field("filter");
    let metadata = query.text("filter").filter(|text| !text.is_empty()).map(Json::parse).transpose();
    let metadata = metadata.map_err(|flaw| wrong(flaw.to_string()))?;
    if metadata.as_ref().is_some_and(|filter| !filter.as_str().starts_with('{')) {
        return Err(wrong("the filter must be a JSON object".to_owned()));
    }
    let filter = CheckpointFilter {
        thread_id,
        // An empty one is the root, not all of them.
        ns: query.text("ns").map(|_| query.parsed("ns").map(Option::unwrap_or_default)).transpose()?,
        before: query.parsed("before")?,
        run_id: query.parsed("run_id")?,
        metadata,
    };
    let (checkpoints, more) = server.threads.store().checkpoints().list(owner, &filter, &page).await?;
    let next_cursor = next_cursor(more, checkpoints.last().map(CheckpointsAfter::from));
    Ok(CheckpointList { checkpoints, next_cursor })
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
