//! Lists of runs: filtered, sorted, a page at a time.
//!
//! A page is found in two steps: the ids of its runs, from narrow rows, and then the runs themselves. With a search,
//! the first step walks the list in order, which is quick for words that many runs have. If the page is not full after
//! many runs, the words are rare enough for the index. Both find the same.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Row, RunRecord, Runs, excerpt,
    filter::{RunFilter, Values, filtered},
    prefix,
};
use crate::{
    domain::{
        id::RunId,
        limits::{SEARCH_WALK_EVENTS, SEARCH_WALK_RUNS},
        principal::OwnerId,
    },
    store::{
        Error,
        page::{Page, page},
        search::Searched,
    },
    wire::runs::{Descendants, Excerpt},
};

/// What a list is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Created,
    Updated,
    Duration,
    Events,
    Tokens,
    Cost,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    pub sort: Sort,
    pub is_ascending: bool,
}

/// A run's place in a list: the number it is sorted by, and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub key: i64,
    pub run: RunId,
}

/// A run of a list.
#[derive(Debug)]
pub struct Listed {
    pub place: Place,
    pub record: RunRecord,
    pub excerpt: Option<Excerpt>,
    /// Its descendants, if only runs without a parent are listed.
    pub descendants: Option<Descendants>,
}

/// A page of a list.
#[derive(Debug)]
pub struct RunsPage {
    pub runs: Vec<Listed>,
    pub has_more: bool,
    /// How complete the index was, if it was searched.
    pub searched: Option<Searched>,
}

/// A row of the first step.
struct Candidate {
    run_id: Uuid,
    key: i64,
    is_match: bool,
    /// The texts of a run that are searched before it is indexed; only for a run that the index does not find.
    texts: Option<String>,
    /// Runs that were found before the bound on their events was applied.
    candidates: i64,
}

/// The next runs in the order of their creation, and whether they have the words. Stops at a number of runs, or of
/// their events.
macro_rules! walk {
    ($order:literal, $than:literal, $filter:tt, $($more:expr),+) => {
        filtered!(
            Candidate,
            [r#"select c.run_id as "run_id!", c.key as "key!", c.candidates as "candidates!", m.is_match as "is_match!",
                       case when not m.is_match then concat_ws(' ', c.title, c.agent, c.run_id) end as texts
                from (select n.*, count(*) over () as candidates,
                             sum(n.last_seq) over (order by n.created_at "#, $order, ", n.run_id ", $order, r#") - n.last_seq as before
                      from (select r.run_id, r.last_seq, r.created_at, r.title, r.agent,
                                   (extract(epoch from r.created_at) * 1000000)::bigint as key
                            from store.run r"#],
            [" and ($19::timestamptz is null or (r.created_at, r.run_id) ", $than, " ($19, $20::uuid))
                            order by r.created_at ", $order, ", r.run_id ", $order, " limit $21) n) c
                cross join lateral (
                    select not exists (
                        select from unnest($22::text[]) as q (query)
                        where not exists (
                            select from store.search_document d
                            where d.run_id = c.run_id and d.owner_id = $1 and d.words @@ q.query::tsquery)) as is_match
                ) m
                where c.before < $23::bigint
                order by c.created_at ", $order, ", c.run_id ", $order],
            $filter, $($more),+
        )
    };
}

/// The next runs in any sort order, of all or of those that the index finds.
macro_rules! sorted {
    ($runs:literal, $order:literal, $than:literal, $filter:tt, $($more:expr),+) => {
        filtered!(
            Candidate,
            [r#"select n.run_id as "run_id!", n.key as "key!", true as "is_match!", null::text as texts,
                       0::bigint as "candidates!"
                from (select r.run_id, case $21::text
                                 when 'created' then (extract(epoch from r.created_at) * 1000000)::bigint
                                 when 'updated' then (extract(epoch from r.last_event_at) * 1000000)::bigint
                                 when 'duration' then coalesce(store.duration_ms(r), -1)
                                 when 'tokens' then r.input_tokens + r.output_tokens
                                 when 'cost' then case when r.calls > r.unpriced_calls
                                                       then (r.cost_usd * 1000000000)::bigint else -1 end
                                 else r.last_seq end as key
                      from "#, $runs],
            [") n
                where $19::bigint is null or (n.key, n.run_id) ", $than, " ($19, $20::uuid)
                order by n.key ", $order, ", n.run_id ", $order, " limit $22"],
            $filter, $($more),+
        )
    };
}

impl Sort {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Duration => "duration",
            Self::Events => "events",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Created, Self::Updated, Self::Duration, Self::Events, Self::Tokens, Self::Cost];
        all.into_iter().find(|sort| sort.as_str() == text)
    }
}

impl Runs<'_> {
    /// A page of this owner's runs.
    pub async fn list(
        self,
        owner: &OwnerId,
        filter: &RunFilter,
        order: Order,
        wanted: &Page<Place>,
        now: DateTime<Utc>,
    ) -> Result<RunsPage, Error> {
        let values = filter.values(owner);
        self.transaction(owner, async |mut tx| {
            let searched = if values.queries.is_empty() { None } else { Some(self.searched(&mut tx, now).await?) };
            plan_for_values(&mut tx).await?;
            let mut places = places(&mut tx, filter, &values, order, wanted).await?;
            let limit = usize::try_from(wanted.limit).unwrap_or(usize::MAX);
            let is_cut = places.len() > limit;
            places.truncate(limit);
            let (runs, is_short) = listed(&mut tx, owner, &places, filter.is_roots).await?;
            tx.commit().await?;
            Ok(RunsPage { runs, has_more: is_cut || is_short, searched })
        })
        .await
    }

    /// The newest of this owner's runs that pass a filter without a search, at most `limit`.
    pub async fn newest(self, owner: &OwnerId, filter: &RunFilter, limit: i64) -> Result<Vec<RunRecord>, Error> {
        let (values, wanted) = (filter.values(owner), Page { after: None, limit });
        self.transaction(owner, async |mut tx| {
            plan_for_values(&mut tx).await?;
            let mut places = places(&mut tx, filter, &values, Order::default(), &wanted).await?;
            places.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            let (records, _) = records(&mut tx, owner, &places).await?;
            tx.commit().await?;
            Ok(records)
        })
        .await
    }
}

/// Makes Postgres plan a transaction's statements for their values, so that an unused filter costs nothing.
pub(super) async fn plan_for_values(tx: &mut PgConnection) -> Result<(), Error> {
    sqlx::query_scalar!("select set_config('plan_cache_mode', 'force_custom_plan', true)").fetch_one(tx).await?;
    Ok(())
}

/// The places of a page, and one more if there is one.
async fn places(
    tx: &mut PgConnection,
    filter: &RunFilter,
    values: &Values,
    order: Order,
    wanted: &Page<Place>,
) -> Result<Vec<Place>, Error> {
    let limit = wanted.limit + 1;
    if order.sort == Sort::Created {
        let is_search = !values.queries.is_empty();
        let runs = if is_search { SEARCH_WALK_RUNS.max(limit) } else { limit };
        let seen = walked(tx, filter, values, order, wanted, runs).await?;
        let candidates = seen.first().map_or(0, |first| first.candidates);
        let is_whole = candidates < runs && i64::try_from(seen.len()).is_ok_and(|seen| seen == candidates);
        let matches = seen.into_iter().filter(|run| run.is_match || run.is_named(filter)).map(Candidate::place);
        let found: Vec<Place> = matches.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect();
        if !is_search || is_whole || i64::try_from(found.len()).is_ok_and(|found| found == limit) {
            return Ok(found);
        }
    }
    Ok(by_index(tx, filter, values, order, wanted).await?.into_iter().map(Candidate::place).collect())
}

async fn walked(
    tx: &mut PgConnection,
    filter: &RunFilter,
    values: &Values,
    order: Order,
    wanted: &Page<Place>,
    runs: i64,
) -> Result<Vec<Candidate>, Error> {
    let after = wanted.after.and_then(|place| DateTime::from_timestamp_micros(place.key));
    let run = wanted.after.map(|place| place.run.uuid());
    let events = if values.queries.is_empty() { i64::MAX } else { SEARCH_WALK_EVENTS };
    let queries = &values.queries;
    Ok(if order.is_ascending {
        walk!("asc", ">", (filter, values), after, run, runs, queries, events).fetch_all(tx).await?
    } else {
        walk!("desc", "<", (filter, values), after, run, runs, queries, events).fetch_all(tx).await?
    })
}

async fn by_index(
    tx: &mut PgConnection,
    filter: &RunFilter,
    values: &Values,
    order: Order,
    wanted: &Page<Place>,
) -> Result<Vec<Candidate>, Error> {
    let (after, run) = (wanted.after.map(|place| place.key), wanted.after.map(|place| place.run.uuid()));
    let (sort, limit, queries) = (order.sort.as_str(), wanted.limit + 1, &values.queries);
    Ok(match (queries.is_empty(), order.is_ascending) {
        (true, false) => {
            sorted!("store.run r", "desc", "<", (filter, values), after, run, sort, limit).fetch_all(tx).await?
        }
        (true, true) => {
            sorted!("store.run r", "asc", ">", (filter, values), after, run, sort, limit).fetch_all(tx).await?
        }
        (false, false) => {
            let found = sorted!(
                "store.runs_with_words($23) f (id) join store.run r on r.run_id = f.id",
                "desc",
                "<",
                (filter, values),
                after,
                run,
                sort,
                limit,
                queries
            );
            found.fetch_all(tx).await?
        }
        (false, true) => {
            let found = sorted!(
                "store.runs_with_words($23) f (id) join store.run r on r.run_id = f.id",
                "asc",
                ">",
                (filter, values),
                after,
                run,
                sort,
                limit,
                queries
            );
            found.fetch_all(tx).await?
        }
    })
}

impl Candidate {
    /// Whether a run that the index does not find has the words in its title, agent and id. So a new run is found at
    /// once by its name.
    fn is_named(&self, filter: &RunFilter) -> bool {
        let Some(search) = filter.search.as_ref().filter(|_| filter.model.is_none()) else { return false };
        search.is_in(self.texts.as_deref().into_iter())
    }

    fn place(self) -> Place {
        Place { key: self.key, run: RunId::trusted(self.run_id) }
    }
}

/// The runs at these places, and whether some had no room on the page.
async fn records(tx: &mut PgConnection, owner: &OwnerId, places: &[Place]) -> Result<(Vec<RunRecord>, bool), Error> {
    let ids: Vec<Uuid> = places.iter().map(|place| place.run.uuid()).collect();
    let rows = runs!(
        r#"from (select r.*, o.place, j.lease_ms as j_lease_ms,
                        j.lease_until - j.lease_ms * interval '1 millisecond' as j_heard_at, null::text as node_times
                 from unnest($2::uuid[]) with ordinality as o (id, place)
                 join store.run r on r.run_id = o.id
                 left join store.job j on j.run_id = r.run_id
                 where r.owner_id = $1) run
           order by place"#,
        owner.as_str(),
        &ids
    );
    let (rows, is_short) = page(i64::MAX, rows.fetch(tx), prefix::texts_bytes).await?;
    Ok((rows.into_iter().map(RunRecord::try_from).collect::<Result<_, _>>()?, is_short))
}

/// The same with what a list shows besides.
async fn listed(
    tx: &mut PgConnection,
    owner: &OwnerId,
    places: &[Place],
    is_roots: bool,
) -> Result<(Vec<Listed>, bool), Error> {
    let (records, is_short) = records(tx, owner, places).await?;
    let shown: Vec<Uuid> = records.iter().map(|record| record.context.run_id.uuid()).collect();
    let mut excerpts = excerpt::of(tx, owner, &records).await?;
    let mut below = if is_roots { Some(excerpt::below(tx, owner, &shown).await?) } else { None };
    let keys: HashMap<RunId, Place> = places.iter().map(|place| (place.run, *place)).collect();
    let runs = records.into_iter().filter_map(|record| {
        let run = record.context.run_id;
        let descendants = below.as_mut().map(|below| below.remove(&run.uuid()).unwrap_or_default());
        Some(Listed { place: *keys.get(&run)?, excerpt: excerpts.remove(&run.uuid()), descendants, record })
    });
    Ok((runs.collect(), is_short))
}
