//! The timeline of a run: spans and sums, folded from its events when asked.

use axum::{Json as Reply, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Server,
    extract::{Caller, RunPath},
    problem::Problem,
};
use crate::domain::{
    event::timestamp,
    id::Seq,
    limits::{REPLAY_ROWS, SPANS_MAX},
    principal::Scope,
    span::{Span, Summary, Timeline},
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

/// Spans, nesting and sums of a run.
#[utoipa::path(get, operation_id = "get_timeline", path = "/api/runs/{run_id}/timeline", tag = "runs", params(("run_id" = uuid::Uuid, Path)),
    responses((status = 200, body = RunTimeline, description = "The waterfall"), (status = 404, body = Problem, description = "Absent or foreign")))]
async fn show(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
) -> Result<Reply<RunTimeline>, Problem> {
    let owner = caller.needs_run(Scope::Read, run)?.owner();
    let record = server.timeline.run(owner, run).await?.ok_or_else(Problem::not_found)?;
    let zero = record.head.started_at.unwrap_or(record.head.created_at);
    let mut timeline = Timeline::new(run, zero);
    let mut after = Seq::ZERO;
    loop {
        let page =
            server.timeline.store().run_page(owner, run, after, REPLAY_ROWS).await?.ok_or_else(Problem::not_found)?;
        for (place, event) in &page.events {
            after = place.seq;
            timeline.take(event);
        }
        if page.complete {
            break;
        }
    }
    let (mut spans, summary, last_seq) = timeline.finish();
    let spans_omitted = spans.len().saturating_sub(SPANS_MAX);
    spans.truncate(SPANS_MAX);
    Ok(Reply(RunTimeline {
        run_id: run.uuid(),
        last_seq: last_seq.get(),
        started_at: timestamp(zero),
        spans,
        spans_omitted,
        summary,
    }))
}
