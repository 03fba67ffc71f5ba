//! Lists of runs, and their numbers over time.

use std::{collections::BTreeMap, str::FromStr};

use axum::{Json as Reply, extract::State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Caller, Query},
    handler::routes,
    page::{RunPlace, next_cursor},
    problem::{Code, Problem},
    runs::shown,
};
use crate::{
    domain::{
        event::timestamp,
        id::ThreadId,
        id_prefix::RunIdPrefix,
        limits::{BUCKETS_DEFAULT, BUCKETS_MAX, COST_USD_MAX, FILTER_VALUES_MAX, PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX},
        principal::{OwnerId, Scope},
        run::Status,
    },
    store::{
        page::Page,
        runs::{
            filter::RunFilter,
            histogram::Histogram,
            list::{Listed, Order, Sort},
        },
        search::Searched,
    },
    wire::runs::{Run, RunList, SearchState},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(histogram))
}

fn search_state(searched: Searched, now: DateTime<Utc>) -> SearchState {
    let lag_ms = searched.up_to.map(|up_to| (now - up_to).num_milliseconds().max(0));
    SearchState { up_to: searched.up_to.map(timestamp), lag_ms }
}

/// Numbers of runs over time.
#[derive(Debug, Serialize, ToSchema)]
struct RunHistogram {
    /// RFC 3339, UTC, microseconds.
    since: String,
    until: String,
    /// The width of a bucket, milliseconds.
    bucket_ms: i64,
    /// Those with runs, oldest first.
    buckets: Vec<RunBucket>,
    /// Of all buckets together, by status.
    totals: BTreeMap<&'static str, i64>,
    /// How far the search was, if there was one (`q`, `model`).
    searched: Option<SearchState>,
}

#[derive(Debug, Serialize, ToSchema)]
struct RunBucket {
    /// When it begins, a multiple of its width.
    at: String,
    /// Runs that were created in it, by status; without zeros.
    counts: BTreeMap<&'static str, i64>,
}

/// List runs, newest first unless another order is requested.
#[utoipa::path(get, operation_id = "list_runs", path = "/api/runs", tag = "runs", params(
    ("status" = Option<String>, Query, description = "One or more statuses, separated by commas"),
    ("thread_id" = Option<String>, Query, description = "Runs of this thread"),
    ("agent" = Option<String>, Query, description = "Runs of one of these agents, separated by commas; a comma in a name is `\\,`"),
    ("tag" = Option<String>, Query, description = "Runs with all of these tags, separated by commas"),
    ("model" = Option<String>, Query, description = "Runs in which an event names this model"),
    ("role" = Option<String>, Query, description = "One or more roles, separated by commas; all but `router` when absent"),
    ("q" = Option<String>, Query, description = "Words that are all in the run: its title, messages, tools, errors, payloads"),
    ("id_prefix" = Option<String>, Query, description = "The beginning of the id, at least 4 hexadecimal digits; takes only `limit` beside it, includes every role, and has one page"),
    ("external_id" = Option<String>, Query, description = "The run with this external id"),
    ("parent_run_id" = Option<uuid::Uuid>, Query, description = "Children of this run"),
    ("roots" = Option<bool>, Query, description = "Only runs without a parent, with what is below them"),
    ("since" = Option<DateTime<Utc>>, Query, description = "Created at or after"),
    ("until" = Option<DateTime<Utc>>, Query, description = "Created before"),
    ("updated_since" = Option<DateTime<Utc>>, Query, description = "Last event at or after"),
    ("updated_until" = Option<DateTime<Utc>>, Query, description = "Last event before"),
    ("duration_min_ms" = Option<i64>, Query, description = "Took at least"),
    ("duration_max_ms" = Option<i64>, Query, description = "Took less than"),
    ("cost_min_usd" = Option<f64>, Query, description = "Cost at least this many US dollars; the cost of a run is known if the price of one of its calls is"),
    ("cost_max_usd" = Option<f64>, Query, description = "Cost less than this"),
    ("root_run_id" = Option<uuid::Uuid>, Query, description = "The tree of this run, itself included"),
    ("sort" = Option<String>, Query, description = "`created` (default), `updated`, `duration`, `events`, `tokens` or `cost`"),
    ("order" = Option<String>, Query, description = "`desc` (default) or `asc`"),
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = RunList, description = "A page"), (status = 400, body = Problem, description = "Invalid"),
    (status = 429, body = Problem, description = "`busy`: too much for now, narrow the filter")))]
async fn list(State(server): State<Server>, caller: Caller, query: Query) -> Result<Reply<RunList>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    if let Some(prefix) = query.parsed("id_prefix")? {
        return by_prefix(&server, owner, prefix, &query).await;
    }
    let thread_id = query.parsed("thread_id")?;
    run_list(&server, owner, thread_id, &query).await
}

/// The runs whose ids have this prefix.
async fn by_prefix(
    server: &Server,
    owner: &OwnerId,
    prefix: RunIdPrefix,
    query: &Query,
) -> Result<Reply<RunList>, Problem> {
    if query.names().any(|name| !matches!(name, "id_prefix" | "limit")) {
        let detail = "id_prefix takes no other filter and no cursor beside it, only limit";
        return Err(Problem::new(Code::InvalidRequest, detail).field("id_prefix"));
    }
    let limit = query.number("limit", PAGE_ROWS_DEFAULT, 1, PAGE_ROWS_MAX)?;
    let store = server.timeline.store();
    let stream_cursor = store.feeds().tail(owner).await?.to_string();
    let records = store.runs().with_prefix(owner, prefix, limit).await?;
    let now = server.timeline.clock().now();
    let runs = records.into_iter().map(|record| shown(record, now)).collect();
    Ok(Reply(RunList { runs, next_cursor: None, stream_cursor, searched: None }))
}

/// A page of runs, of one thread or of all.
pub(super) async fn run_list(
    server: &Server,
    owner: &OwnerId,
    thread_id: Option<ThreadId>,
    query: &Query,
) -> Result<Reply<RunList>, Problem> {
    let (filter, order) = (filter(thread_id, query)?, order(query)?);
    let Page { after, limit } = query.page::<RunPlace>()?;
    if after.is_some_and(|after| after.order != order) {
        return Err(Problem::bad_cursor());
    }
    let wanted = Page { after: after.map(|after| after.place), limit };
    let (store, now) = (server.timeline.store(), server.timeline.clock().now());
    // The tail first: a run created in between appears on the page, in the stream, or in both.
    let stream_cursor = store.feeds().tail(owner).await?.to_string();
    let page = store.runs().list(owner, &filter, order, &wanted, now).await?;
    let last = page.runs.last().map(|last| RunPlace { order, place: last.place });
    let listed = |Listed { record, excerpt, descendants, .. }| Run { excerpt, descendants, ..shown(record, now) };
    Ok(Reply(RunList {
        next_cursor: next_cursor(page.has_more, last),
        runs: page.runs.into_iter().map(listed).collect(),
        stream_cursor,
        searched: page.searched.map(|searched| search_state(searched, now)),
    }))
}

/// Numbers of runs by time and status.
///
/// It takes the filters of the list of runs; `since` and `until` are its ends.
#[utoipa::path(get, operation_id = "count_runs", path = "/api/runs/histogram", tag = "runs", params(
    ("status" = Option<String>, Query, description = "As for the list of runs, like all other filters of it"),
    ("q" = Option<String>, Query, description = "Words that are all in the run"),
    ("since" = Option<DateTime<Utc>>, Query, description = "Where it begins; the first run when absent"),
    ("until" = Option<DateTime<Utc>>, Query, description = "Where it ends; now when absent"),
    ("buckets" = Option<i64>, Query, description = "How many buckets at most, 1 to 200, default 60")),
    responses((status = 200, body = RunHistogram, description = "The counts"), (status = 400, body = Problem, description = "Invalid"),
    (status = 429, body = Problem, description = "`busy`: too much for now, narrow the filter")))]
async fn histogram(State(server): State<Server>, caller: Caller, query: Query) -> Result<Reply<RunHistogram>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let filter = filter(query.parsed("thread_id")?, &query)?;
    let buckets = query.number("buckets", BUCKETS_DEFAULT, 1, BUCKETS_MAX)?;
    let now = server.timeline.clock().now();
    let found = server.timeline.store().runs().histogram(owner, &filter, buckets, now).await?;
    let Histogram { since, until, bucket_ms, counts, searched } = found;
    let (mut buckets, mut totals) = (Vec::<RunBucket>::new(), BTreeMap::new());
    for counts in counts.chunk_by(|one, other| one.0 == other.0) {
        let bucket = counts.iter().map(|(_, status, runs)| (status.as_str(), *runs)).collect();
        buckets.push(RunBucket { at: timestamp(counts[0].0), counts: bucket });
        for (_, status, runs) in counts {
            *totals.entry(status.as_str()).or_default() += runs;
        }
    }
    let searched = searched.map(|searched| search_state(searched, now));
    Ok(Reply(RunHistogram { since: timestamp(since), until: timestamp(until), bucket_ms, buckets, totals, searched }))
}

fn filter(thread_id: Option<ThreadId>, query: &Query) -> Result<RunFilter, Problem> {
    Ok(RunFilter {
        statuses: several(query, "status", |text| Status::parse(text).ok_or("unknown status"))?,
        thread_id,
        agents: several(query, "agent", parse)?,
        tags: several(query, "tag", parse)?,
        parent_run_id: query.parsed("parent_run_id")?,
        external_id: query.parsed("external_id")?,
        roles: query.roles()?,
        search: query.parsed("q")?,
        model: query.parsed("model")?,
        since: query.parsed("since")?,
        until: query.parsed("until")?,
        updated_since: query.parsed("updated_since")?,
        updated_until: query.parsed("updated_until")?,
        duration_min_ms: query.parsed("duration_min_ms")?,
        duration_max_ms: query.parsed("duration_max_ms")?,
        cost_min_usd: dollars(query, "cost_min_usd")?,
        cost_max_usd: dollars(query, "cost_max_usd")?,
        root_run_id: query.parsed("root_run_id")?,
        is_roots: query.parsed("roots")?.unwrap_or(false),
    })
}

/// An amount of US dollars.
fn dollars(query: &Query, name: &str) -> Result<Option<f64>, Problem> {
    let amount: Option<f64> = query.parsed(name)?;
    match amount {
        Some(amount) if !(0.0..=COST_USD_MAX).contains(&amount) => {
            let rule = format!("must be US dollars from 0 to {COST_USD_MAX}");
            Err(Problem::new(Code::InvalidRequest, rule).field(name))
        }
        amount => Ok(amount),
    }
}

fn parse<T: FromStr>(text: &str) -> Result<T, T::Err> {
    text.parse()
}

/// Values separated by commas; `\,` is a comma in one.
fn several<T, E: ToString>(query: &Query, name: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<Vec<T>, Problem> {
    let refused = |detail: String| Problem::new(Code::InvalidRequest, detail).field(name);
    // No value may have a control character, so one can stand for the comma.
    let text = query.text(name).unwrap_or_default();
    if text.contains('\0') {
        return Err(refused("a NUL is not allowed".to_owned()));
    }
    let text = text.replace("\\,", "\0");
    let values = text.split(',').filter(|value| !value.is_empty()).map(|value| value.replace('\0', ","));
    let values: Vec<T> =
        values.map(|value| parse(&value).map_err(|error| refused(error.to_string()))).collect::<Result<_, _>>()?;
    if values.len() > FILTER_VALUES_MAX {
        return Err(refused(format!("at most {FILTER_VALUES_MAX} values can be named")));
    }
    Ok(values)
}

fn order(query: &Query) -> Result<Order, Problem> {
    let unknown = |name: &str, detail: &str| Problem::new(Code::InvalidRequest, detail).field(name);
    let sort = match query.text("sort").filter(|text| !text.is_empty()) {
        None => Sort::default(),
        Some(text) => Sort::parse(text)
            .ok_or_else(|| unknown("sort", "a list is sorted by created, updated, duration, events, tokens or cost"))?,
    };
    let is_ascending = match query.text("order").unwrap_or_default() {
        "" | "desc" => false,
        "asc" => true,
        _ => return Err(unknown("order", "the order is desc or asc")),
    };
    Ok(Order { sort, is_ascending })
}
