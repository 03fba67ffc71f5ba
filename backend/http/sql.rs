//! SQL over HTTP: a principal's query over its own rows, and the schema.

mod guide;

use axum::{
    Json as Reply,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tokio::time::{Duration, Instant};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use self::guide::Guide;
use super::{
    Server,
    extract::{Body, Caller},
    handler::routes,
    problem::{Code, Problem},
};
use crate::{
    domain::{
        cell::{csv_line, json},
        json::Json,
        limits::{QUERY_MS_MAX, QUERY_RESULT_BYTES_MAX, QUERY_ROWS_DEFAULT, QUERY_ROWS_MAX},
        principal::Scope,
        query::{Query, Unavailable},
    },
    store::queries::{Answer, Bounds, Rejection, Unanswered},
};

/// Set on truncated CSV; JSON has a member.
pub(super) const TRUNCATED: HeaderName = HeaderName::from_static("runreel-truncated");

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(ask)).routes(routes!(schema))
}

/// A query.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AskQuery {
    /// One `select`, `with`, `values` or `table`.
    query: String,
    /// 1 to 10 000, default 1 000.
    rows_max: Option<i64>,
    /// 1 to 10 000, which is the default.
    timeout_ms: Option<i64>,
}

/// The rows of a query.
#[derive(Debug, Serialize, ToSchema)]
struct QueryResult {
    columns: Vec<QueryColumn>,
    /// Numbers, booleans, `json` and arrays are JSON, everything else is text.
    #[schema(value_type = Vec<Vec<serde_json::Value>>)]
    rows: Vec<Json>,
    /// Whether there are more rows.
    is_truncated: bool,
    elapsed_ms: f64,
}

/// A column of a result; names may repeat.
#[derive(Debug, Serialize, ToSchema)]
struct QueryColumn {
    name: String,
    /// The type as Postgres names it, in lower case: `int8`, `timestamptz`, `text[]`.
    #[serde(rename = "type")]
    kind: String,
}

/// Run one query over what belongs to the principal, as JSON or with `Accept: text/csv` as CSV.
#[utoipa::path(post, operation_id = "query", path = "/api/sql", tag = "sql", request_body = AskQuery, responses(
    (status = 200, description = "The rows", content((QueryResult = "application/json"), (String = "text/csv"))),
    (status = 422, body = Problem, description = "`query_refused`, `query_failed`, `query_too_slow`"),
    (status = 429, body = Problem, description = "`busy`"), (status = 400, body = Problem, description = "Invalid")))]
async fn ask(
    State(server): State<Server>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let request: AskQuery = body.json()?;
    let rows_max = within("rows_max", request.rows_max, QUERY_ROWS_DEFAULT, QUERY_ROWS_MAX)?;
    let timeout_ms = within("timeout_ms", request.timeout_ms, QUERY_MS_MAX, QUERY_MS_MAX)?;
    let query = Query::parse(&request.query).map_err(|Unavailable { rule, position }| {
        Problem::new(Code::QueryRefused, rule)
            .field("query")
            .hint("GET /api/sql/schema lists the views; docs/sql.md has examples")
            .in_query(Some(position), None)
    })?;
    let timeout = Duration::from_millis(timeout_ms.unsigned_abs());
    let began = Instant::now();
    let answered = server.queries.ask(owner, &query, Bounds { rows_max, bytes_max: QUERY_RESULT_BYTES_MAX, timeout });
    let answer = answered.await.map_err(problem)?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("text/csv") {
        return Ok(csv(&answer));
    }
    let elapsed_ms = began.elapsed().as_secs_f64() * 1_000.0;
    Ok(Reply(QueryResult {
        rows: answer.rows.iter().map(|cells| row(&answer, cells)).collect(),
        columns: answer
            .columns
            .iter()
            .map(|column| QueryColumn { name: column.name.clone(), kind: column.kind.to_lowercase() })
            .collect(),
        is_truncated: answer.is_truncated,
        elapsed_ms,
    })
    .into_response())
}

/// A number of a request, within its bound.
fn within(field: &str, number: Option<i64>, default: i64, max: i64) -> Result<i64, Problem> {
    let number = number.unwrap_or(default);
    if (1..=max).contains(&number) {
        return Ok(number);
    }
    Err(Problem::new(Code::InvalidRequest, format!("must be a number from 1 to {max}")).field(field))
}

fn row(answer: &Answer, cells: &[Option<String>]) -> Json {
    let mut text = String::from("[");
    for (column, cell) in answer.columns.iter().zip(cells) {
        if text.len() > 1 {
            text.push(',');
        }
        json(&mut text, &column.kind, cell.as_deref());
    }
    text.push(']');
    Json::trusted(text)
}

fn csv(answer: &Answer) -> Response {
    let mut text = String::new();
    csv_line(&mut text, answer.columns.iter().map(|column| Some(column.name.as_str())));
    for cells in &answer.rows {
        csv_line(&mut text, cells.iter().map(Option::as_deref));
    }
    let mut response =
        ([(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8; header=present"))], text)
            .into_response();
    if answer.is_truncated {
        response.headers_mut().insert(TRUNCATED, HeaderValue::from_static("true"));
    }
    response
}

fn problem(why: Unanswered) -> Problem {
    match why {
        Unanswered::Busy => Problem::new(Code::Busy, "too many queries are in progress, of this principal or of all")
            .hint("nothing was done; try again after Retry-After"),
        Unanswered::GaveWay => {
            Problem::new(Code::Busy, "the query had its share of the time, and others wait for a turn")
                .hint("ask for less, or try again after Retry-After")
        }
        Unanswered::TooSlow => Problem::new(Code::QueryTooSlow, "the query took longer than it may")
            .hint("query less: a range of run_id, see docs/sql.md, or raise timeout_ms if it is not the largest"),
        Unanswered::Rejected(Rejection { message, sqlstate, position, hint }) => {
            let problem = Problem::new(Code::QueryFailed, message).field("query").in_query(position, Some(sqlstate));
            match hint {
                Some(hint) => problem.hint(hint),
                None => problem,
            }
        }
        Unanswered::Store(error) => error.into(),
    }
}

/// What there is to ask: views, columns, functions and examples, as in `docs/sql.md`.
#[utoipa::path(get, operation_id = "query_schema", path = "/api/sql/schema", tag = "sql",
    responses((status = 200, body = Guide, description = "The views")))]
async fn schema(caller: Caller) -> Result<Reply<Guide>, Problem> {
    caller.needs_all(Scope::Read)?;
    Ok(Reply(Guide::read()))
}
