//! Answers to interrupts.

use std::sync::Arc;

use axum::{Json as Reply, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Server,
    extract::{Body, Caller, RunPath},
    model::Run,
    problem::{Code, Problem},
};
use crate::{
    domain::{
        context::RunContext,
        id::RunId,
        id::SpanId,
        interrupt::{Answer, Decision},
        json::Json,
        principal::{OwnerId, Scope},
    },
    timeline::interrupts::AnswerError,
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(resume))
}

/// An answer to an interrupt.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Resume {
    /// The `span_id` of the `interrupt.requested` event.
    #[schema(value_type = String)]
    interrupt_id: SpanId,
    /// `approve`, `reject` or `respond`; the others are set by the server.
    decision: Decision,
    /// Any JSON of at most 64 KiB.
    #[schema(value_type = Option<serde_json::Value>)]
    value: Option<Json>,
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
    timeline.answer_interrupt(&context, &Answer { interrupt_id, decision, value }).await?;
    let mut record = timeline.run(&context.owner_id, run).await?.ok_or_else(Problem::not_found)?;
    if context.owner_id != *asker {
        record.conceal();
    }
    Ok((StatusCode::ACCEPTED, Reply(Run::of(record, timeline.clock().now()))))
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
