//! Runs as they are listed and shown.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Error, error::known, model_calls::spent, wait_for_share};
use crate::domain::{
    context::{Origin, Role, RunContext},
    id::{ExternalId, Name, RunId, Seq, ThreadId, Title},
    json::Json,
    principal::OwnerId,
    run::{Head, RunFields, Status},
    usage::Spent,
};

/// A run with everything the API returns about it.
#[derive(Clone, Debug)]
pub struct RunRecord {
    pub context: RunContext,
    pub depth: i16,
    pub fields: RunFields,
    pub heartbeat_at: Option<DateTime<Utc>>,
    /// Usage of its model calls; `None` if it has recorded none.
    pub spent: Option<Spent>,
    pub head: Head,
}

impl RunRecord {
    /// Keeps only what an approver of another principal's run may see: the run, its agent and its status.
    pub fn conceal(&mut self) {
        let RunContext { thread_id, session_id, origin, trace_id, .. } = &mut self.context;
        (*thread_id, *session_id, *origin, *trace_id) = (None, None, None, None);
        let RunFields { lease_ms, ttl_s, .. } = self.fields;
        self.fields = RunFields { lease_ms, ttl_s, ..RunFields::default() };
        (self.head.output, self.head.error, self.spent) = (None, None, None);
    }

    /// Whether a running run's producer has been silent for longer than its lease.
    pub fn is_stalled(&self, now: DateTime<Utc>) -> bool {
        let heard = self.heartbeat_at.unwrap_or(self.head.last_event_at).max(self.head.last_event_at);
        self.head.status == Status::Running
            && self.fields.lease_ms.is_some_and(|lease_ms| (now - heard).num_milliseconds() > lease_ms)
    }
}

/// How long the steps of one name took, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeTimes {
    /// As reported by the steps, or else measured.
    pub duration_ms: f64,
    /// The rest of the time between their starts and ends.
    pub waiting_ms: f64,
}

#[derive(Debug)]
struct Row {
    run_id: Uuid,
    owner_id: String,
    root_run_id: Uuid,
    parent_run_id: Option<Uuid>,
    depth: i16,
    thread_id: Option<String>,
    session_id: Option<String>,
    agent: Option<String>,
    role: String,
    origin_channel: Option<String>,
    origin_chat: Option<String>,
    origin_user: Option<String>,
    trace_id: Option<String>,
    external_id: Option<String>,
    title: Option<String>,
    input: Option<String>,
    metadata: String,
    tags: Vec<String>,
    lease_ms: Option<i64>,
    ttl_s: Option<i64>,
    heartbeat_at: Option<DateTime<Utc>>,
    status: String,
    last_seq: i64,
    output: Option<String>,
    error: Option<String>,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
    last_event_at: DateTime<Utc>,
    /// By step, its duration and waiting time: an object of pairs of numbers as texts, which lose no precision.
    node_times: Option<String>,
    /// The numbers of [`Spent`], as a JSON array.
    spent: Option<String>,
}

/// A query of runs. `$from` supplies the columns of `store.run`, and those of the job's lease.
macro_rules! runs {
    ($from:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"select run_id, owner_id, root_run_id, parent_run_id, depth, thread_id, session_id, agent, role,
                      origin_channel, origin_chat, origin_user, trace_id, external_id, title, input::text as input,
                      metadata::text as "metadata!", tags, ttl_s, coalesce(j_lease_ms, lease_ms) as "lease_ms?",
                      greatest(heartbeat_at, j_heard_at) as "heartbeat_at?", status, last_seq,
                      output::text as output, error::text as error, created_at, started_at, ended_at, last_event_at,
                      node_times as "node_times?", store.spent(calls, input_tokens, cached_tokens, cache_write_tokens,
                          output_tokens, reasoning_tokens, cost_usd, unpriced_calls) as "spent?"
               "# + $from,
            $($argument),+
        )
    };
}

pub mod excerpt;
pub mod filter;
pub mod histogram;
pub mod list;
mod prefix;

impl TryFrom<Row> for RunRecord {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let origin = row.origin_channel.zip(row.origin_chat);
        Ok(Self {
            context: RunContext {
                run_id: RunId::trusted(row.run_id),
                root_run_id: RunId::trusted(row.root_run_id),
                parent_run_id: row.parent_run_id.map(RunId::trusted),
                owner_id: OwnerId::trusted(&row.owner_id),
                thread_id: row.thread_id.as_deref().map(ThreadId::trusted),
                session_id: row.session_id.as_deref().map(Name::trusted),
                role: known(Role::parse(&row.role), &row.role)?,
                agent: row.agent.as_deref().map(Name::trusted),
                origin: origin.map(|(channel, chat)| Origin {
                    channel: Name::trusted(&channel),
                    chat,
                    user: row.origin_user,
                }),
                trace_id: row.trace_id,
            },
            depth: row.depth,
            fields: RunFields {
                title: row.title.as_deref().map(Title::trusted),
                input: row.input.map(Json::trusted),
                metadata: Json::trusted(row.metadata),
                tags: row.tags.iter().map(|tag| Name::trusted(tag)).collect(),
                lease_ms: row.lease_ms,
                external_id: row.external_id.as_deref().map(ExternalId::trusted),
                ttl_s: row.ttl_s,
            },
            heartbeat_at: row.heartbeat_at,
            spent: row.spent.as_deref().and_then(spent),
            head: Head {
                status: known(Status::parse(&row.status), &row.status)?,
                last_seq: Seq::new(row.last_seq).unwrap_or_default(),
                created_at: row.created_at,
                started_at: row.started_at,
                ended_at: row.ended_at,
                last_event_at: row.last_event_at,
                output: row.output.map(Json::trusted),
                error: row.error.map(Json::trusted),
            },
        })
    }
}

repository! {
    /// Runs: their heads, and what they were created with.
    Runs, runs
}

impl Runs<'_> {
    /// One run of this owner.
    pub async fn get(self, owner: &OwnerId, run: RunId) -> Result<Option<RunRecord>, Error> {
        self.by_itself(owner, |mut connection| async move {
            let row = runs!(
                r#"from (select set_config('runreel.owner', $1, true) as owner offset 0) me
                   cross join lateral (
                       select r.*, j.lease_ms as j_lease_ms,
                              j.lease_until - j.lease_ms * interval '1 millisecond' as j_heard_at,
                              null::text as node_times
                       from store.run r left join store.job j using (run_id)
                       where r.run_id = $2 and r.owner_id = me.owner
                       offset 0
                   ) run"#,
                owner.as_str(),
                run.uuid()
            );
            row.fetch_optional(&mut *connection).await?.map(RunRecord::try_from).transpose()
        })
        .await
    }

    /// One run of this owner, and how long its steps took, by the first 256 characters of their names; a step that has
    /// not ended does not count. Computed as the view `node_durations` does, whose migration explains it. No times for
    /// a run of more than `events_max` events.
    pub async fn get_with_times(
        self,
        owner: &OwnerId,
        run: RunId,
        events_max: i64,
    ) -> Result<Option<(RunRecord, BTreeMap<String, NodeTimes>)>, Error> {
        self.by_itself(owner, |mut connection| async move {
            let row = runs!(
                r#"from (select set_config('runreel.owner', $1, true) as owner offset 0) me
                   cross join lateral (
                       select r.*, j.lease_ms as j_lease_ms, j.lease_until - j.lease_ms * interval '1 millisecond' as j_heard_at,
                              case when r.last_seq <= $3::bigint then (
                                  select json_object_agg(t.node, json_build_array(t.duration_ms::text, t.waiting_ms::text))::text
                                  from (
                                      select s.node, sum(d.duration_ms) as duration_ms,
                                             sum(greatest(s.between_ms - d.duration_ms, 0)) as waiting_ms
                                      from (
                                          select m.type, m.starts, m.ends, left(coalesce(m.payload ->> 'name', m.payload ->> 'title', m.span_id), 256) as node,
                                                 greatest((extract(epoch from first_value(m.at) over ending - m.at) * 1000)::float8, 0) as between_ms,
                                                 first_value(m.asked_ms) over ending - m.asked_ms as asked_ms,
                                                 store.own_ms(first_value(m.payload) over ending) as own_ms
                                          from (
                                              select e.*, coalesce(sum(e.answered_ms) over (order by e.seq), 0) as asked_ms,
                                                     count(*) filter (where e.type = 'step.started') over (partition by e.span_id) as starts,
                                                     count(*) filter (where e.type in ('step.completed', 'step.failed'))
                                                         over (partition by e.span_id order by e.seq desc) as ends
                                              from (
                                                  select e.*, case when e.type = 'run.resumed' and lag(e.type) over life = 'run.interrupted'
                                                                       then greatest((extract(epoch from e.at - lag(e.at) over life) * 1000)::float8, 0) end as answered_ms
                                                  from store.run_event e
                                                  where e.run_id = $2 and e.owner_id = me.owner
                                                    and (e.type in ('run.interrupted', 'run.waiting', 'run.resumed')
                                                         or e.span_id is not null and e.type in ('step.started', 'step.completed', 'step.failed'))
                                                  window life as (partition by e.type in ('run.interrupted', 'run.waiting', 'run.resumed') order by e.seq)
                                              ) e
                                          ) m
                                          window ending as (partition by m.span_id, m.ends order by m.seq desc)
                                      ) s
                                      cross join lateral (select coalesce(s.own_ms, greatest(s.between_ms - s.asked_ms, 0)) as duration_ms) d
                                      where s.type = 'step.started' and s.ends > 0 or s.type in ('step.completed', 'step.failed') and s.starts = 0
                                      group by s.node
                                  ) t
                              ) end as node_times
                       from store.run r
                       left join store.job j using (run_id)
                       where r.run_id = $2 and r.owner_id = me.owner
                       offset 0
                   ) run"#,
                owner.as_str(),
                run.uuid(),
                events_max
            );
            let Some(mut row) = row.fetch_optional(&mut *connection).await? else { return Ok(None) };
            let times: BTreeMap<String, (String, String)> =
                row.node_times.take().and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
            let ms = |text: &str| text.parse().unwrap_or_default();
            let times = times.into_iter().map(|(node, (duration, waiting))| {
                (node, NodeTimes { duration_ms: ms(&duration), waiting_ms: ms(&waiting) })
            });
            Ok(Some((RunRecord::try_from(row)?, times.collect())))
        })
        .await
    }

    /// The contexts of these runs, for frames of many runs; not limited to an owner, so only the relay uses it, and the
    /// check whether a principal may answer for a run.
    pub(crate) async fn contexts(self, runs: &[RunId]) -> Result<Vec<RunContext>, Error> {
        let ids: Vec<Uuid> = runs.iter().map(|run| run.uuid()).collect();
        self.maintenance(async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"select run_id, owner_id, root_run_id, parent_run_id, depth, thread_id, session_id, agent, role,
                          origin_channel, origin_chat, origin_user, trace_id, external_id, title, null::text as input,
                          '{}' as "metadata!", tags, lease_ms, ttl_s, heartbeat_at, status, last_seq,
                          null::text as output, null::text as error, created_at, started_at, ended_at, last_event_at,
                          null::text as node_times, null::text as spent
                   from store.run where run_id = any ($1)"#,
                &ids
            )
            .fetch_all(&mut *connection)
            .await?;
            rows.into_iter().map(|row| Ok(RunRecord::try_from(row)?.context)).collect()
        })
        .await
    }

    /// Full records of runs of any owner; only for the jobs that the dispatch assigns.
    pub(super) async fn records(self, runs: &[Uuid]) -> Result<Vec<RunRecord>, Error> {
        self.maintenance(async |mut connection| {
            let rows = runs!(
                r#"from (select *, null::bigint as j_lease_ms, null::timestamptz as j_heard_at,
                                null::text as node_times
                         from store.run) run
                   where run_id = any ($1)"#,
                runs
            );
            rows.fetch_all(&mut *connection).await?.into_iter().map(RunRecord::try_from).collect()
        })
        .await
    }

    /// Renews a producer's lease; `false` if the owner has no such run.
    pub async fn heartbeat(self, owner: &OwnerId, run: RunId, now: DateTime<Utc>) -> Result<bool, Error> {
        let _turn = wait_for_share(&self.heartbeats, owner).await?;
        self.maintenance(async |mut connection| {
            let done = sqlx::query!(
                "update store.run set heartbeat_at = $3 where run_id = $1 and owner_id = $2",
                run.uuid(),
                owner.as_str(),
                now
            )
            .execute(&mut *connection)
            .await?;
            Ok(done.rows_affected() == 1)
        })
        .await
    }
}
