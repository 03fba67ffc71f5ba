//! Runs: create, get, cancel, delete.

use std::collections::BTreeMap;

use axum::{
    Json as Reply,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, SubsecRound as _, Utc};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Allowed, Body, Caller, ExternalIdPath, RunPath, Trace},
    handler::routes,
    outputs,
    problem::{Code, Problem},
    threads::created_or_ok,
};
use crate::{
    domain::{
        event::timestamp,
        id::{ExternalId, RunId, Title},
        limits::{JOBS_OWN_MAX, NODE_DURATIONS_EVENTS_MAX, RUN_ID_SKEW_MS_MAX},
        principal::{OwnerId, Scope},
        run::{Refusal, RunFields, Spec, Status},
    },
    store::{retention::Removal, runs::RunRecord},
    timeline::emit::{EmitError, Opening},
    wire::runs::{Cancel, CreateRun, Run, Spending},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(show, delete))
        .routes(routes!(find, put))
        .routes(routes!(cancel))
        .routes(routes!(heartbeat))
}

/// Create a run.
///
/// The same `run_id` again with the same content answers 200 with the same run; with other content 409 `run_exists`. An
/// `external_id` that another run of the owner has is 409 `external_id_taken`.
#[utoipa::path(post, operation_id = "create_run", path = "/api/runs", tag = "runs", request_body = CreateRun, responses(
    (status = 201, description = "Created; `Location` names it", body = Run),
    (status = 200, description = "Already exists", body = Run),
    (status = 403, body = Problem, description = "The principal may not use the agent"),
    (status = 409, description = "`run_exists`, `external_id_taken`", body = Problem), (status = 400, body = Problem, description = "Invalid")))]
async fn create(State(server): State<Server>, caller: Caller, trace: Trace, body: Body) -> Result<Response, Problem> {
    let caller = caller.needs_all(Scope::Emit)?;
    let owner = caller.owner();
    let mut request: CreateRun = body.json()?;
    let fields = request.fields()?;
    let (run, is_new) = open(&server, caller, trace, request, fields).await?;
    let record = server.timeline.run(owner, run).await?.ok_or_else(Problem::not_found)?;
    Ok(created_or_found(&server, record, is_new))
}

/// Get the run with this external id, or create it.
///
/// Of concurrent requests one creates the run and the others find it. An existing run is answered as it is, whatever the
/// body; so the request is safe to repeat.
#[utoipa::path(put, operation_id = "put_run", path = "/api/runs/by-external-id/{external_id}", tag = "runs", params(("external_id" = String, Path)),
    request_body(content = Option<CreateRun>), responses((status = 201, description = "Created; `Location` names it", body = Run),
    (status = 200, description = "Already exists", body = Run),
    (status = 403, body = Problem, description = "The principal may not use the agent"),
    (status = 409, description = "`run_exists`", body = Problem), (status = 400, body = Problem, description = "Invalid")))]
async fn put(
    State(server): State<Server>,
    caller: Caller,
    trace: Trace,
    ExternalIdPath(id): ExternalIdPath,
    body: Body,
) -> Result<Response, Problem> {
    let caller = caller.needs_all(Scope::Emit)?;
    let owner = caller.owner();
    let mut request: CreateRun = body.json()?;
    if request.external_id.replace(id.clone()).is_some_and(|named| named != id) {
        let detail = "the external_id in the body differs from the one in the path";
        return Err(Problem::new(Code::InvalidRequest, detail).field("external_id"));
    }
    let fields = request.fields()?;
    if let Some(record) = with_external_id(&server, owner, &id).await? {
        return Ok(created_or_found(&server, record, false));
    }
    let (run, is_new) = match open(&server, caller, trace, request, fields).await {
        Err(problem) if problem.code() == Code::ExternalIdTaken => {
            // Another request was faster, or the id is an alias of another run.
            let Some(record) = with_external_id(&server, owner, &id).await? else {
                let is_alias = server.timeline.store().runs().with_alias(owner, &id).await?.is_some();
                let detail = "a run with this external id was created and deleted in this moment";
                let busy = Problem::new(Code::Busy, detail).hint("nothing was stored; send the same request again");
                return Err(if is_alias { problem } else { busy });
            };
            return Ok(created_or_found(&server, record, false));
        }
        opened => opened?,
    };
    let record = server.timeline.run(owner, run).await?.ok_or_else(Problem::not_found)?;
    Ok(created_or_found(&server, record, is_new))
}

async fn with_external_id(server: &Server, owner: &OwnerId, id: &ExternalId) -> Result<Option<RunRecord>, Problem> {
    let Some(run) = server.timeline.store().runs().with_external_id(owner, id).await? else { return Ok(None) };
    Ok(server.timeline.run(owner, run).await?)
}

fn created_or_found(server: &Server, record: RunRecord, is_new: bool) -> Response {
    let run = record.context.run_id;
    let shown = shown(record, server.timeline.clock().now());
    let mut response = (created_or_ok(is_new), Reply(shown)).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/api/runs/{run}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Creates a run whose fields were checked; `false` if the same request created it before.
pub(super) async fn open(
    server: &Server,
    caller: Allowed<'_>,
    trace: Trace,
    request: CreateRun,
    fields: RunFields,
) -> Result<(RunId, bool), Problem> {
    let owner = caller.owner();
    server
        .creations
        .take(owner, 1)
        .map_err(|wait| Problem::new(Code::Busy, "the principal exceeds its limit of runs per minute").after(wait))?;
    if let Some(agent) = request.agent.as_ref().filter(|_| request.start == Some(false)) {
        caller.may_use(server, agent)?;
        outputs::check(server, owner, (agent, request.thread_id.as_ref()), fields.input.as_ref()).await?;
    }
    let timeline = &server.timeline;
    let now = timeline.clock().now();
    if request.run_id.is_some_and(|run| !run.is_of_today(now.timestamp_millis())) {
        let detail = "a run_id chosen by the client must be a UUIDv7 of today (within 24 hours)";
        return Err(Problem::new(Code::InvalidRequest, detail)
            .field("run_id")
            .hint("send your own id as external_id, which takes any, and leave out run_id"));
    }
    let began_at = request.at.map(|at| at.trunc_subsecs(6));
    if began_at.is_some_and(|at| (now - at).num_milliseconds().abs() > RUN_ID_SKEW_MS_MAX) {
        let detail = "the time at which a run began must be within 24 hours of now";
        return Err(Problem::new(Code::InvalidRequest, detail).field("at"));
    }
    let run = request.run_id.unwrap_or_else(|| RunId::trusted(timeline.ids().uuid()));
    let parent = match request.parent_run_id {
        None => None,
        Some(parent) => Some(timeline.context(owner, parent).await?.ok_or_else(Problem::not_found)?),
    };
    let trace = trace.0.or_else(|| parent.as_ref().and_then(|parent| parent.trace_id.clone()));
    let trace_id = trace.unwrap_or_else(|| timeline.ids().uuid().simple().to_string());
    let start = request.start.unwrap_or(true);
    let spec = Spec { context: request.context(owner, run, parent.as_deref(), trace_id), fields, start };
    if spec.is_job() && timeline.store().jobs().has_any(owner, JOBS_OWN_MAX).await? {
        let detail = format!("{JOBS_OWN_MAX} runs of this principal are queued for agents or in progress");
        return Err(Problem::new(Code::Busy, detail).hint("nothing was stored; try again when some of them have ended"));
    }
    let hash = spec.content_hash();
    let ack = timeline.open_run_with(spec, hash, Opening { began_at, ..Opening::default() }).await?;
    Ok((run, !ack.already_open))
}

/// Get a run.
#[utoipa::path(get, operation_id = "get_run", path = "/api/runs/{run_id}", tag = "runs", params(("run_id" = uuid::Uuid, Path)),
    responses((status = 200, body = Run, description = "The run"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn show(State(server): State<Server>, caller: Caller, RunPath(run): RunPath) -> Result<Reply<Run>, Problem> {
    let owner = caller.needs_run(&server, Scope::Read, run).await?.owner();
    in_full(&server, owner, run).await
}

/// Get the run with this external id.
#[utoipa::path(get, operation_id = "find_run", path = "/api/runs/by-external-id/{external_id}", tag = "runs", params(("external_id" = String, Path)),
    responses((status = 200, body = Run, description = "The run"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn find(
    State(server): State<Server>,
    caller: Caller,
    ExternalIdPath(id): ExternalIdPath,
) -> Result<Reply<Run>, Problem> {
    let owner = caller.needs(Scope::Read)?.owner();
    let run = server.timeline.store().runs().with_external_id(owner, &id).await?.ok_or_else(Problem::not_found)?;
    caller.needs_run(&server, Scope::Read, run).await?;
    in_full(&server, owner, run).await
}

async fn in_full(server: &Server, owner: &OwnerId, run: RunId) -> Result<Reply<Run>, Problem> {
    let runs = server.timeline.store().runs();
    let found = match runs.get_with_times(owner, run, NODE_DURATIONS_EVENTS_MAX).await {
        // A run is shown even if its steps cannot be added up in time.
        Err(error) if error.is_too_slow() => runs.get(owner, run).await?.map(|record| (record, BTreeMap::new())),
        found => found?,
    };
    let (record, times) = found.ok_or_else(Problem::not_found)?;
    let mut shown = shown(record, server.timeline.clock().now());
    if !times.is_empty() {
        let waiting = times.iter().map(|(node, times)| (node.clone(), times.waiting_ms)).collect();
        let durations = times.into_iter().map(|(node, times)| (node, times.duration_ms)).collect();
        (shown.node_durations_ms, shown.node_waiting_ms) = (Some(durations), Some(waiting));
    }
    Ok(Reply(shown))
}

/// Delete an ended run with its events.
#[utoipa::path(delete, operation_id = "delete_run", path = "/api/runs/{run_id}", tag = "runs", params(("run_id" = uuid::Uuid, Path)),
    responses((status = 204, description = "Deleted"), (status = 404, body = Problem, description = "Not found, or of another owner"),
              (status = 409, body = Problem, description = "`run_not_ended`")))]
async fn delete(State(server): State<Server>, caller: Caller, RunPath(run): RunPath) -> Result<StatusCode, Problem> {
    let owner = caller.needs_run(&server, Scope::Admin, run).await?.owner();
    remove(&server, owner, run).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes an ended run of this owner.
pub(super) async fn remove(server: &Server, owner: &OwnerId, run: RunId) -> Result<(), Problem> {
    match server.timeline.delete_run(owner, run).await? {
        Removal::Done => {
            server.threads.forget_own(owner, &[run]).await?;
            Ok(())
        }
        Removal::Absent => Err(Problem::not_found()),
        Removal::StillLive => Err(Problem::new(Code::RunNotEnded, "only a run that has ended may be deleted")
            .hint("cancel it first: POST /api/runs/{run_id}/cancel")),
    }
}

/// Cancel a run and all its descendants that have not ended.
#[utoipa::path(post, operation_id = "cancel_run", path = "/api/runs/{run_id}/cancel", tag = "runs", params(("run_id" = uuid::Uuid, Path)),
    request_body(content = Option<Cancel>), responses((status = 202, body = Run, description = "Cancelled, now or before"),
    (status = 404, body = Problem, description = "Not found, or of another owner"), (status = 409, body = Problem, description = "`run_ended` otherwise")))]
async fn cancel(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    body: Body,
) -> Result<(StatusCode, Reply<Run>), Problem> {
    let owner = caller.needs_run(&server, Scope::Emit, run).await?.owner();
    let Cancel { reason } = body.json()?;
    let record = cancelled(&server, owner, run, reason.as_ref()).await?;
    Ok((StatusCode::ACCEPTED, Reply(shown(record, server.timeline.clock().now()))))
}

/// Cancels a run of this owner and its descendants; one that had ended otherwise is an error.
pub(super) async fn cancelled(
    server: &Server,
    owner: &OwnerId,
    run: RunId,
    reason: Option<&Title>,
) -> Result<RunRecord, Problem> {
    let timeline = &server.timeline;
    timeline.cancel_run(owner, run, reason).await?;
    let record = timeline.run(owner, run).await?.ok_or_else(Problem::not_found)?;
    if record.head.status != Status::Cancelled {
        return Err(EmitError::Refused(Refusal::Ended { status: record.head.status }).into());
    }
    Ok(record)
}

/// Renew the lease of a run's producer.
#[utoipa::path(post, operation_id = "renew_lease", path = "/api/runs/{run_id}/heartbeat", tag = "runs", params(("run_id" = uuid::Uuid, Path)),
    responses((status = 204, description = "Renewed"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn heartbeat(State(server): State<Server>, caller: Caller, RunPath(run): RunPath) -> Result<StatusCode, Problem> {
    let owner = caller.needs_run(&server, Scope::Emit, run).await?.owner();
    let now = server.timeline.clock().now();
    let found = server.timeline.store().runs().heartbeat(owner, run, now).await?;
    if found { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found()) }
}

/// A run as clients see it, at this time.
pub(super) fn shown(record: RunRecord, now: DateTime<Utc>) -> Run {
    let (stalled, head, context) = (record.is_stalled(now), record.head, record.context);
    let RunFields { title, input, metadata, tags, lease_ms, external_id, ttl_s } = record.fields;
    Run {
        run_id: context.run_id,
        root_run_id: context.root_run_id,
        parent_run_id: context.parent_run_id,
        owner_id: context.owner_id.as_str().to_owned(),
        external_id: external_id.map(|id| id.as_str().to_owned()),
        thread_id: context.thread_id.map(|id| id.as_str().to_owned()),
        session_id: context.session_id.map(|id| id.as_str().to_owned()),
        agent: context.agent.map(|name| name.as_str().to_owned()),
        role: context.role,
        title: title.map(|title| title.as_str().to_owned()),
        status: head.status,
        input,
        output: head.output,
        error: head.error,
        metadata,
        tags: tags.iter().map(|tag| tag.as_str().to_owned()).collect(),
        last_seq: head.last_seq.get(),
        created_at: timestamp(head.created_at),
        started_at: head.started_at.map(timestamp),
        ended_at: head.ended_at.map(timestamp),
        last_event_at: timestamp(head.last_event_at),
        stalled,
        lease_ms,
        ttl_s,
        origin: context.origin,
        trace_id: context.trace_id,
        usage: record.spent.map(Spending::from),
        stream_url: format!("/api/stream/runs/{}", context.run_id),
        node_durations_ms: None,
        node_waiting_ms: None,
        excerpt: None,
        descendants: None,
    }
}
