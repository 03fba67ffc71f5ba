//! The usage of a run: tokens and money, of its tree, by model and by call.

use axum::{Json as Reply, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Caller, Query, RunPath},
    handler::routes,
    page::next_cursor,
    problem::Problem,
};
use crate::{
    domain::{
        event::timestamp,
        id::Seq,
        principal::{Reach, Scope},
    },
    store::model_calls::CallRecord,
    wire::runs::{Spending, Tokens},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(show))
}

/// The usage of a run.
#[derive(Debug, Serialize, ToSchema)]
struct RunUsage {
    run_id: uuid::Uuid,
    /// Null while no call has told its tokens.
    usage: Option<Spending>,
    /// Of the run and all its descendants; null for a credential that is limited to the run.
    tree: Option<TreeUsage>,
    /// At most 100, the most expensive first.
    models: Vec<ModelUsage>,
    /// By seq.
    calls: Vec<CallUsage>,
    next_cursor: Option<String>,
}

/// The usage of a run and its descendants.
#[derive(Debug, Serialize, ToSchema)]
struct TreeUsage {
    runs: i64,
    usage: Option<Spending>,
}

/// The usage of one model in a run.
#[derive(Debug, Serialize, ToSchema)]
struct ModelUsage {
    /// As the producer names it; null when it names none.
    model: Option<String>,
    #[serde(flatten)]
    usage: Spending,
}

/// A call of a model.
#[derive(Debug, Serialize, ToSchema)]
struct CallUsage {
    /// Of the event that tells it.
    seq: i64,
    span_id: Option<String>,
    model: Option<String>,
    at: String,
    #[serde(flatten)]
    tokens: Tokens,
    /// US dollars; null when the price is not known.
    cost_usd: Option<f64>,
}

impl From<CallRecord> for CallUsage {
    fn from(CallRecord { seq, span_id, model, at, usage, cost_usd }: CallRecord) -> Self {
        Self { seq, span_id, model, at: timestamp(at), tokens: usage.into(), cost_usd }
    }
}

/// Tokens and money of a run, of its tree, by model and by call.
#[utoipa::path(get, operation_id = "get_usage", path = "/api/runs/{run_id}/usage", tag = "runs", params(
    ("run_id" = uuid::Uuid, Path),
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page of calls"),
    ("limit" = Option<i64>, Query, description = "Calls, 1 to 1000, default 100")),
    responses((status = 200, body = RunUsage, description = "The usage"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn show(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    query: Query,
) -> Result<Reply<RunUsage>, Problem> {
    let owner = caller.needs_run(&server, Scope::Read, run).await?.owner();
    let page = query.page::<Seq>()?;
    let record = server.timeline.run(owner, run).await?.ok_or_else(Problem::not_found)?;
    let calls = server.timeline.store().model_calls();
    // A thread's token covers some runs of a tree, so it must not see the sum.
    let tree = match caller.reach() {
        Reach::Everything | Reach::Tree(_) => Some(calls.of_tree(owner, run).await?),
        Reach::Run(_) | Reach::Thread(_) => None,
    };
    let models = calls.by_model(owner, run).await?;
    let (calls, more) = calls.page(owner, run, page.after.unwrap_or(Seq::ZERO), page.limit).await?;
    let next_cursor = next_cursor(more, calls.last().and_then(|last| Seq::new(last.seq)));
    Ok(Reply(RunUsage {
        run_id: run.uuid(),
        usage: record.spent.map(Spending::from),
        tree: tree.map(|(runs, spent)| TreeUsage { runs, usage: spent.map(Spending::from) }),
        models: models.into_iter().map(|(model, spent)| ModelUsage { model, usage: spent.into() }).collect(),
        calls: calls.into_iter().map(CallUsage::from).collect(),
        next_cursor,
    }))
}
