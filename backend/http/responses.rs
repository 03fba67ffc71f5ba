//! `OpenAI` Responses: create, retrieve, follow, cancel, delete. Translation is in
//! [`faces::responses`](crate::faces::responses).

mod errors;
mod shown;

use axum::{
    Json as Reply,
    extract::{Extension, Path, State},
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use serde_json::{Map, Value, json};
use utoipa_axum::router::OpenApiRouter;

pub(super) use self::errors::errors_in_its_words;
use self::shown::{head, input_item};
use super::{
    Server,
    chats::{self, decide, follow, place},
    extract::{Allowed, Body, Caller, Query, Trace},
    handler::routes,
    lasting::Lasting,
    outputs::{self, Unasked},
    problem::{Code, Problem},
    runs,
    stream::jitter,
    stream_body::stream,
};
use crate::{
    domain::{
        id::{RunId, ThreadId},
        json::Json,
        limits::{DRAINED_RETRY_MS, PAYLOAD_BYTES_MAX},
        principal::Scope,
        run::{RunFields, Status},
    },
    faces::{
        Encoder,
        conversation::{Conversation, Shown},
        position::Position,
        responses::{
            Responses,
            request::{CreateResponse, ID_PREFIX, run_of},
            whole::{When, Whole},
        },
    },
    paced::Outflow,
    quota::Share,
    store::runs::RunRecord,
    wire::runs::CreateRun,
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(retrieve, delete))
        .routes(routes!(cancel))
        .routes(routes!(input_items))
}

/// Positions are numbers, so one text at a time is shown while it is written.
const SHOWN: Shown = Shown { texts_max: 1, reasoning: false, announcements: false };

/// Create a response: a run of the agent that `model` names.
///
/// With `stream` its events follow; with `background` it is returned at once; otherwise when the run has ended or waits
/// for a person. A client that leaves does not stop the run.
#[utoipa::path(post, operation_id = "create_response", path = "/v1/responses", tag = "protocols",
    request_body(content = Object, description = "See docs/protocols/openai-responses.md"),
    responses((status = 200, description = "A response, or its events", content_type = "application/json"),
    (status = 400, description = "Invalid, in OpenAI's form"), (status = 404, description = "No such previous response")))]
async fn create(
    State(server): State<Server>,
    caller: Caller,
    trace: Trace,
    Extension(outflow): Extension<Outflow>,
    body: Body,
) -> Result<Response, Problem> {
    let caller = caller.needs_all(Scope::Emit)?.needs(Scope::Read)?;
    let place = place(&server, caller.owner())?;
    let new = CreateResponse::read(&body.json::<Map<String, Value>>()?)?;
    let (is_stream, is_background) = (new.stream, new.background);
    let previous = match new.previous {
        Some(run) => {
            let record = server.timeline.run(caller.owner(), run).await?;
            Some(record.ok_or_else(|| Problem::not_found().field("previous_response_id"))?)
        }
        None => None,
    };
    let run = match previous {
        Some(previous) if !new.decided.is_empty() => answered(&server, &caller, &previous, &new).await?,
        previous => started(&server, caller, trace, previous.as_ref(), new).await?,
    };
    let record = server.timeline.run(caller.owner(), run).await?.ok_or_else(Problem::not_found)?;
    if is_stream {
        return events(&server, caller, (place, outflow), &record, Position::default()).await;
    }
    whole(&server, caller, &record, if is_background { When::Now } else { When::Settled }).await
}

/// Retrieve a response, or with `stream=true` its events.
///
/// Of a run that was not created as a response, too: `resp_` and its id. With `starting_after` exactly the events that
/// follow the one with this number.
#[utoipa::path(get, operation_id = "get_response", path = "/v1/responses/{response_id}", tag = "protocols", params(
    ("response_id" = String, Path), ("stream" = Option<bool>, Query, description = "Its events"),
    ("starting_after" = Option<i64>, Query, description = "Those after this `sequence_number`")),
    responses((status = 200, description = "A response, or its events", content_type = "application/json"),
    (status = 404, description = "Not found, or of another owner"), (status = 409, description = "`cursor_ahead`")))]
async fn retrieve(
    State(server): State<Server>,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
    Extension(outflow): Extension<Outflow>,
) -> Result<Response, Problem> {
    let (caller, record) = found(&server, &caller, Scope::Read, &id).await?;
    let place = place(&server, caller.owner())?;
    if !query.parsed::<bool>("stream")?.unwrap_or_default() {
        return whole(&server, caller, &record, When::Now).await;
    }
    let position = match query.text("starting_after").filter(|text| !text.is_empty()) {
        Some(text) => starting_after(text)?,
        None => Position::default(),
    };
    if position.seq > record.head.last_seq {
        let detail = format!("the log ends at {}", record.head.last_seq);
        return Err(Problem::new(Code::CursorAhead, detail).field("starting_after"));
    }
    events(&server, caller, (place, outflow), &record, position).await
}

/// The position after which a reader wants the events.
fn starting_after(text: &str) -> Result<Position, Problem> {
    let rule = "starting_after must be the sequence_number of an event of this response, a whole number";
    let number = text.parse().map_err(|_| Problem::new(Code::InvalidRequest, rule).field("starting_after"))?;
    Position::from_number(number).map_err(|rule| Problem::new(Code::InvalidCursor, rule.0).field("starting_after"))
}

/// Cancel a response.
#[utoipa::path(post, operation_id = "cancel_response", path = "/v1/responses/{response_id}/cancel", tag = "protocols",
    params(("response_id" = String, Path)), responses((status = 200, description = "The response"),
    (status = 404, description = "Not found, or of another owner"), (status = 409, description = "`run_ended` otherwise")))]
async fn cancel(State(server): State<Server>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    let (caller, record) = found(&server, &caller, Scope::Emit, &id).await?;
    let record = runs::cancelled(&server, caller.owner(), record.context.run_id, None).await?;
    whole(&server, caller, &record, When::Now).await
}

/// Delete a response that has ended, with its run.
#[utoipa::path(delete, operation_id = "delete_response", path = "/v1/responses/{response_id}", tag = "protocols",
    params(("response_id" = String, Path)), responses((status = 200, description = "Deleted"),
    (status = 404, description = "Not found, or of another owner"), (status = 409, description = "`run_not_ended`")))]
async fn delete(State(server): State<Server>, caller: Caller, Path(id): Path<String>) -> Result<Reply<Value>, Problem> {
    let (caller, record) = found(&server, &caller, Scope::Admin, &id).await?;
    runs::remove(&server, caller.owner(), record.context.run_id).await?;
    Ok(Reply(json!({"id": id, "object": "response", "deleted": true})))
}

/// List what a response was asked: newest first, or oldest first with `order=asc`.
#[utoipa::path(get, operation_id = "list_response_input", path = "/v1/responses/{response_id}/input_items", tag = "protocols",
    params(("response_id" = String, Path), ("order" = Option<String>, Query, description = "`asc` or `desc`")),
    responses((status = 200, description = "All of them in one page"), (status = 404, description = "Not found, or of another owner")))]
async fn input_items(
    State(server): State<Server>,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
) -> Result<Reply<Value>, Problem> {
    let (_, record) = found(&server, &caller, Scope::Read, &id).await?;
    let input = match record.fields.input {
        Some(input) => Some(server.timeline.whole_input(&record.context, input).await?),
        None => None,
    };
    let messages: Vec<Value> = input.and_then(|input| input.member("messages")).unwrap_or_default();
    let mut items: Vec<Value> = messages.iter().enumerate().map(|(n, message)| input_item(n, message)).collect();
    if query.text("order") != Some("asc") {
        items.reverse();
    }
    let id_of =
        |item: Option<&Value>| item.map_or_else(String::new, |item| item["id"].as_str().unwrap_or("").to_owned());
    let (first, last) = (id_of(items.first()), id_of(items.last()));
    Ok(Reply(json!({"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": false})))
}

/// The run behind a response's id, for a caller with this scope.
async fn found<'a>(
    server: &Server,
    caller: &'a Caller,
    scope: Scope,
    id: &str,
) -> Result<(Allowed<'a>, RunRecord), Problem> {
    let run = run_of(id).ok_or_else(Problem::not_found)?;
    let caller = caller.needs_run(server, scope, run).await?;
    Ok((caller, server.timeline.run(caller.owner(), run).await?.ok_or_else(Problem::not_found)?))
}

/// Answers approvals; the response that asked continues.
async fn answered(
    server: &Server,
    caller: &Caller,
    previous: &RunRecord,
    new: &CreateResponse,
) -> Result<RunId, Problem> {
    if !new.messages.is_empty() {
        let rule = "approvals are sent alone: the response that asked goes on with them";
        return Err(Problem::new(Code::InvalidRequest, rule).field("input"));
    }
    if previous.context.agent.as_ref() != Some(&new.agent) {
        let rule = "approvals are for the agent that asked: send its name as model";
        return Err(Problem::new(Code::InvalidRequest, rule).field("model"));
    }
    decide(server, caller, previous.context.run_id, &[], &new.decided).await?;
    Ok(previous.context.run_id)
}

/// Starts the run of a new response.
async fn started(
    server: &Server,
    caller: Allowed<'_>,
    trace: Trace,
    previous: Option<&RunRecord>,
    new: CreateResponse,
) -> Result<RunId, Problem> {
    caller.may_use(server, &new.agent)?;
    let run = RunId::trusted(server.timeline.ids().uuid());
    let thread_id = match previous {
        None => new.conversation.clone().or_else(|| new.store.then(|| ThreadId::trusted(&format!("{ID_PREFIX}{run}")))),
        Some(previous) if previous.head.status == Status::Interrupted => {
            let detail =
                "the previous response waits for an approval; answer it with mcp_approval_response, or cancel it";
            return Err(Problem::new(Code::RunNotEnded, detail).field("previous_response_id"));
        }
        Some(previous) => {
            let gone = "the previous response was created with store: false, so there is nothing to continue from";
            let thread = previous.context.thread_id.clone();
            Some(thread.ok_or_else(|| Problem::new(Code::InvalidRequest, gone).field("previous_response_id"))?)
        }
    };
    let mut messages = new.messages;
    let settled = outputs::settle(server, caller.owner(), (&new.agent, thread_id.as_ref()), &mut messages).await?;
    let repeats = settled.map_err(|Unasked { index, rule }| {
        Problem::new(Code::InvalidRequest, rule).field(format!("input[{index}].call_id"))
    })?;
    let mut repeats = repeats.into_iter();
    messages.retain(|_| !repeats.next().unwrap_or_default());
    if messages.is_empty() {
        let rule = "the conversation has all of this already; send what is new";
        return Err(Problem::new(Code::InvalidRequest, rule).field("input"));
    }
    let mut input = json!({"messages": messages});
    if !new.tools.is_empty() {
        input["tools"] = Value::Array(new.tools);
    }
    let asked = json!({"background": new.background, "store": new.store, "metadata": new.metadata,
        "previous_response_id": new.previous.map(|run| format!("{ID_PREFIX}{run}"))});
    let request =
        CreateRun { run_id: Some(run), agent: Some(new.agent), thread_id, start: Some(false), ..CreateRun::default() };
    let metadata = Json::of(&json!({"openai": asked}));
    let fields = RunFields { input: Some(chats::input(&input)?), metadata, ..RunFields::default() };
    fields.check(PAYLOAD_BYTES_MAX)?;
    Ok(runs::open(server, caller, trace, request, fields).await?.0)
}

/// A response's events after a position.
async fn events(
    server: &Server,
    caller: Allowed<'_>,
    connection: (Share, Outflow),
    record: &RunRecord,
    position: Position,
) -> Result<Response, Problem> {
    let follower = follow(server, caller.owner(), record.context.run_id).await?;
    let dialect = Responses::new(record.context.run_id, head(server, record).await);
    let encoder = Conversation::new(dialect, position, SHOWN, jitter(server, DRAINED_RETRY_MS));
    Ok(stream(server, &caller, connection, follower, encoder))
}

/// A response as one JSON object. Waits for it as long as the credential is valid.
async fn whole(server: &Server, caller: Allowed<'_>, record: &RunRecord, when: When) -> Result<Response, Problem> {
    let lasting = Lasting::of(server, &caller);
    let mut follower = follow(server, caller.owner(), record.context.run_id).await?;
    let head = head(server, record).await;
    let mut encoder =
        Conversation::new(Whole::new(Responses::new(record.context.run_id, head), when), Position::default(), SHOWN, 0);
    let mut body = Vec::new();
    loop {
        if lasting.is_over() {
            let id = format!("{ID_PREFIX}{}", record.context.run_id);
            let detail = format!("the credential has expired or was revoked; the response {id} goes on");
            return Err(Problem::new(Code::Unauthorized, detail).hint("get it by its id with another credential"));
        }
        let items = tokio::select! {
            items = follower.next() => items,
            () = lasting.pause() => continue,
        };
        let Some(items) = items else { break };
        encoder.take(items);
        while let Some(chunk) = encoder.chunk() {
            body.extend_from_slice(&chunk);
        }
        if encoder.is_over() {
            break;
        }
    }
    if body.is_empty() {
        // It was deleted while it was read.
        return Err(Problem::not_found());
    }
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
