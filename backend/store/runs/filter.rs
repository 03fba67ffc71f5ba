//! The filter of runs, shared by lists and histograms.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::domain::{
    context::Role,
    id::{ExternalId, Name, RunId, ThreadId},
    principal::OwnerId,
    run::Status,
    search::{Search, model_query},
};

/// The filter of a list.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    pub statuses: Vec<Status>,
    pub thread_id: Option<ThreadId>,
    pub agents: Vec<Name>,
    /// A run must have all of them.
    pub tags: Vec<Name>,
    pub parent_run_id: Option<RunId>,
    pub external_id: Option<ExternalId>,
    /// If empty, all but routers.
    pub roles: Vec<Role>,
    pub search: Option<Search>,
    pub model: Option<Name>,
    pub since: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
    pub updated_since: Option<DateTime<Utc>>,
    pub updated_until: Option<DateTime<Utc>>,
    pub duration_min_ms: Option<i64>,
    pub duration_max_ms: Option<i64>,
    /// US dollars, of the calls whose price is known; a run without such a call has no cost.
    pub cost_min_usd: Option<f64>,
    pub cost_max_usd: Option<f64>,
    /// The tree of this run.
    pub root_run_id: Option<RunId>,
    /// Only runs without a parent.
    pub is_roots: bool,
}

/// A filter as parameters of statements.
pub(super) struct Values {
    pub owner: String,
    pub statuses: Vec<&'static str>,
    pub thread: Option<String>,
    pub agents: Vec<String>,
    pub tags: Vec<String>,
    pub parent: Option<Uuid>,
    pub external: Option<String>,
    pub root: Option<Uuid>,
    pub roles: Vec<&'static str>,
    /// Queries of the search index.
    pub queries: Vec<String>,
}

impl RunFilter {
    pub(super) fn values(&self, owner: &OwnerId) -> Values {
        let mut queries = self.search.as_ref().map(|search| search.queries(owner)).unwrap_or_default();
        queries.extend(self.model.as_ref().map(|model| model_query(owner, model.as_str())));
        let texts = |names: &[Name]| names.iter().map(|name| name.as_str().to_owned()).collect();
        Values {
            owner: owner.as_str().to_owned(),
            statuses: self.statuses.iter().map(|status| status.as_str()).collect(),
            thread: self.thread_id.as_ref().map(|thread| thread.as_str().to_owned()),
            agents: texts(&self.agents),
            tags: texts(&self.tags),
            parent: self.parent_run_id.map(RunId::uuid),
            external: self.external_id.as_ref().map(|id| id.as_str().to_owned()),
            root: self.root_run_id.map(RunId::uuid),
            roles: self.roles.iter().map(|role| role.as_str()).collect(),
            queries,
        }
    }
}

/// A statement over the runs `r` that pass a filter: its beginning, what follows the filter, and its further
/// parameters, from `$19` on.
macro_rules! filtered {
    ($row:ident, [$first:literal $(, $begin:literal)*], [$($end:literal),*], ($filter:expr, $values:expr), $($more:expr),* $(,)?) => {
        sqlx::query_as!(
            $row,
            $first $(+ $begin)* + r#" where r.owner_id = $1
                and (cardinality($2::text[]) = 0 or r.status = any ($2))
                and ($3::text is null or r.thread_id = $3)
                and (cardinality($4::text[]) = 0 or r.agent = any ($4))
                and (cardinality($5::text[]) = 0 or r.tags @> $5)
                and ($6::uuid is null or r.parent_run_id = $6)
                and ($7::text is null or r.external_id = $7)
                and (r.role = any ($8) or cardinality($8::text[]) = 0 and r.role <> 'router')
                and ($9::timestamptz is null or r.created_at >= $9)
                and ($10::timestamptz is null or r.created_at < $10)
                and ($11::timestamptz is null or r.last_event_at >= $11)
                and ($12::timestamptz is null or r.last_event_at < $12)
                and ($13::bigint is null or store.duration_ms(r) >= $13)
                and ($14::bigint is null or store.duration_ms(r) < $14)
                and (not $15::bool or r.parent_run_id is null)
                and ($16::float8 is null or r.calls > r.unpriced_calls and r.cost_usd >= $16::float8::numeric)
                and ($17::float8 is null or r.calls > r.unpriced_calls and r.cost_usd < $17::float8::numeric)
                and ($18::uuid is null or r.root_run_id = $18)"# $(+ $end)*,
            &$values.owner,
            &$values.statuses as &[&str],
            $values.thread.as_deref(),
            &$values.agents,
            &$values.tags,
            $values.parent,
            $values.external.as_deref(),
            &$values.roles as &[&str],
            $filter.since,
            $filter.until,
            $filter.updated_since,
            $filter.updated_until,
            $filter.duration_min_ms,
            $filter.duration_max_ms,
            $filter.is_roots,
            $filter.cost_min_usd,
            $filter.cost_max_usd,
            $values.root,
            $($more),*
        )
    };
}
pub(super) use filtered;
