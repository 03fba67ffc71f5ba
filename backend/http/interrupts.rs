//! Interrupts: the open ones of all runs, and their answers.

use std::sync::Arc;

use axum::{Json as Reply, extract::State, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Body, Caller, Query, RunPath},
    handler::routes,
    page::next_cursor,
    problem::{Code, Problem},
    runs::shown,
};
use crate::{
    domain::{
        context::{Role, RunContext},
        event::timestamp,
        id::RunId,
        interrupt::Answer,
        json::Json,
        principal::{OwnerId, Scope},
        run::Status,
    },
    store::interrupts::{InterruptKey, ListedInterrupt},
    timeline::interrupts::AnswerError,
    wire::runs::{Resume, Run},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(resume)).routes(routes!(list))
}

/// Answer an interrupt; the run continues from the checkpoint it waited at.
///
/// The same answer again is accepted again; a different one is refused with 409 `interrupt_closed`.
#[utoipa::path(post, operation_id = "resume_run", path = "/api/runs/{run_id}/resume", tag = "runs", params(("run_id" = uuid::Uuid, Path)),
    request_body = Resume, responses((status = 202, body = Run, description = "Answered, now or before"),
    (status = 403, body = Problem, description = "Only the agent's approvers may answer"), (status = 404, body = Problem, description = "No such run or interrupt"), (status = 409, body = Problem, description = "`interrupt_closed`, `run_ended`")))]
async fn resume(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    body: Body,
) -> Result<(StatusCode, Reply<Run>), Problem> {
    let asker = caller.needs_run(&server, Scope::Approve, run).await?.owner();
    let Resume { interrupt_id, decision, value } = body.json()?;
    if !decision.is_an_answer() {
        let rule = "a decision must be one of approve, reject, respond";
        return Err(Problem::new(Code::InvalidRequest, rule).field("decision"));
    }
    let timeline = &server.timeline;
    let context = answerable(&server, asker, run).await?;
    timeline.answer_interrupt(&context, &Answer::new(interrupt_id, decision, value).by(asker)).await?;
    let mut record = timeline.run(&context.owner_id, run).await?.ok_or_else(Problem::not_found)?;
    if context.owner_id != *asker {
        record.conceal();
    }
    Ok((StatusCode::ACCEPTED, Reply(shown(record, timeline.clock().now()))))
}

/// A question that nobody has answered.
#[derive(Debug, Serialize, ToSchema)]
struct OpenInterrupt {
    run_id: uuid::Uuid,
    interrupt_id: String,
    /// Of its `interrupt.requested`.
    seq: i64,
    /// `approval`, `question`, or what the producer says.
    kind: Option<String>,
    /// What the person reads.
    prompt: Option<String>,
    /// After it the answer is `expired`.
    expires_at: Option<String>,
    /// RFC 3339, UTC, microseconds.
    requested_at: String,
    /// Whether the caller may answer it.
    may_answer: bool,
    /// Everything the run said, as it was sent.
    #[schema(value_type = serde_json::Value)]
    payload: Json,
    run: AskingRun,
}

/// The run that asks.
#[derive(Debug, Serialize, ToSchema)]
struct AskingRun {
    title: Option<String>,
    agent: Option<String>,
    role: Role,
    status: Status,
    thread_id: Option<String>,
    root_run_id: uuid::Uuid,
    parent_run_id: Option<uuid::Uuid>,
}

impl OpenInterrupt {
    fn of(listed: ListedInterrupt, may_answer: bool) -> Self {
        let members = listed.payload.members();
        let text = |name: &str| members.read::<String>(name);
        Self {
            run_id: listed.run_id.uuid(),
            interrupt_id: listed.interrupt_id.as_str().to_owned(),
            seq: listed.seq.get(),
            kind: text("kind"),
            prompt: text("prompt"),
            expires_at: text("expires_at"),
            requested_at: timestamp(listed.requested_at),
            may_answer,
            payload: listed.payload.clone(),
            run: AskingRun {
                title: listed.title,
                agent: listed.agent.map(|agent| agent.as_str().to_owned()),
                role: listed.role,
                status: listed.status,
                thread_id: listed.thread_id,
                root_run_id: listed.root_run_id,
                parent_run_id: listed.parent_run_id,
            },
        }
    }
}

/// A page of what the caller's runs ask, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct InterruptList {
    interrupts: Vec<OpenInterrupt>,
    /// Send it back as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
    /// Where the owner's feed was just before the page was read.
    stream_cursor: String,
}

/// List the open interrupts of all runs, newest first.
#[utoipa::path(get, operation_id = "list_interrupts", path = "/api/interrupts", tag = "runs", params(
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = InterruptList, description = "A page"), (status = 400, body = Problem, description = "Invalid")))]
async fn list(State(server): State<Server>, caller: Caller, query: Query) -> Result<Reply<InterruptList>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let page = query.page::<InterruptKey>()?;
    let store = server.timeline.store();
    // The tail first: a change in between is on the page, in the stream, or in both.
    let stream_cursor = store.feeds().tail(owner).await?.to_string();
    let (listed, more) = store.interrupts().list(owner, &page).await?;
    let next_cursor = next_cursor(more, listed.last().map(|last| (last.requested_at, last.run_id, last.seq)));
    let admission = server.authenticator.admission();
    let approves = caller.allows(Scope::Approve);
    let may = |listed: &ListedInterrupt| approves && admission.may_answer(owner, listed.agent.as_ref(), owner);
    let interrupts = listed.into_iter().map(|listed| {
        let may_answer = may(&listed);
        OpenInterrupt::of(listed, may_answer)
    });
    Ok(Reply(InterruptList { interrupts: interrupts.collect(), next_cursor, stream_cursor }))
}

/// A run for which `asker` may answer: one of its own, or of an agent whose approver it is.
pub(super) async fn answerable(server: &Server, asker: &OwnerId, run: RunId) -> Result<Arc<RunContext>, Problem> {
    let admission = server.authenticator.admission();
    let may = |context: &RunContext| admission.may_answer(asker, context.agent.as_ref(), &context.owner_id);
    if let Some(own) = server.timeline.context(asker, run).await? {
        let rule = "only the agent's approvers may answer its interrupts";
        return if may(&own) { Ok(own) } else { Err(Problem::new(Code::Forbidden, rule)) };
    }
    let foreign = if admission.answers_for_others(asker) { server.timeline.any_context(run).await? } else { None };
    foreign.filter(|context| may(context)).map(Arc::new).ok_or_else(Problem::not_found)
}

impl From<AnswerError> for Problem {
    fn from(error: AnswerError) -> Self {
        let detail = error.to_string();
        match error {
            AnswerError::NotFound => Self::not_found(),
            AnswerError::TooLarge => Self::new(Code::TooLarge, detail).field("value"),
            AnswerError::AnsweredOtherwise | AnswerError::Expired => Self::new(Code::InterruptClosed, detail)
                .field("interrupt_id")
                .hint("the accepted answer is in the run's log, in its interrupt.resolved"),
            AnswerError::Emit(error) => error.into(),
            AnswerError::Store(error) => error.into(),
        }
    }
}
