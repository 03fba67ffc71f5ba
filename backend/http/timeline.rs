//! The timeline of a run: spans and totals, folded from its events on request.

use axum::{
    body::Body as ReplyBody,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Caller, RunPath},
    handler::routes,
    problem::{Code, Problem},
    replies::pieces,
};
use crate::domain::{
    event::timestamp,
    id::Seq,
    limits::REPLAY_ROWS,
    principal::Scope,
    span::{Folded, Span, Summary, Timeline},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(show))
}

/// A run as a waterfall.
#[derive(Debug, Serialize, ToSchema)]
struct RunTimeline {
    run_id: uuid::Uuid,
    /// The last seq these spans are made of.
    last_seq: i64,
    /// What `start_ms` counts from.
    started_at: String,
    /// In the order they started.
    spans: Vec<Span>,
    /// Spans left out because there are more than 20 000.
    spans_omitted: usize,
    summary: Summary,
}

/// Spans, nesting and totals of a run.
#[utoipa::path(get, operation_id = "get_timeline", path = "/api/runs/{run_id}/timeline", tag = "runs", params(("run_id" = uuid::Uuid, Path)),
    responses((status = 200, body = RunTimeline, description = "The waterfall"), (status = 404, body = Problem, description = "Not found, or of another owner"),
    (status = 429, body = Problem, description = "`busy`")))]
async fn show(State(server): State<Server>, caller: Caller, RunPath(run): RunPath) -> Result<Response, Problem> {
    let owner = caller.needs_run(&server, Scope::Read, run).await?.owner();
    let record = server.timeline.run(owner, run).await?.ok_or_else(Problem::not_found)?;
    let turn = server.timeline_turn(owner).await?;
    let zero = record.head.started_at.unwrap_or(record.head.created_at);
    let mut timeline = Timeline::new(run, zero);
    let mut after = Seq::ZERO;
    loop {
        let page = server
            .timeline
            .store()
            .events()
            .page(owner, run, after, REPLAY_ROWS)
            .await?
            .ok_or_else(Problem::not_found)?;
        for (place, event) in &page.events {
            after = place.seq;
            timeline.take(event);
        }
        if page.complete {
            break;
        }
    }
    let Folded { spans, spans_omitted, summary, last_seq } = timeline.finish();
    let (started_at, last_seq) = (timestamp(zero), last_seq.get());
    let timeline = RunTimeline { run_id: run.uuid(), last_seq, started_at, spans, spans_omitted, summary };
    let json = serde_json::to_vec(&timeline).map_err(|_| Problem::new(Code::Internal, "the timeline has no JSON"))?;
    drop(timeline);
    let headers =
        [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, json.len().to_string())];
    Ok((headers, ReplyBody::from_stream(pieces(json.into(), turn))).into_response())
}
