//! Runs as people list and look at them.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{
    Error, Store,
    error::known,
    page::{Page, page},
};
use crate::domain::{
    context::{Origin, Role, RunContext},
    id::{Name, RunId, Seq, ThreadId},
    json::Json,
    limits::{CANCEL_RUNS_MAX, READ_SHARE_WAIT_MS_MAX},
    principal::OwnerId,
    run::{Head, Status},
};

/// A run with everything the API tells of it.
#[derive(Clone, Debug)]
pub struct RunRecord {
    pub context: RunContext,
    pub depth: i16,
    pub title: Option<String>,
    pub input: Option<Json>,
    pub metadata: Json,
    pub tags: Vec<String>,
    pub lease_ms: Option<i64>,
    pub heartbeat_at: Option<DateTime<Utc>>,
    pub head: Head,
}

impl RunRecord {
    /// Leaves only what somebody may know who answers for a run of another: which run of which agent, and how it stands.
    pub fn conceal(&mut self) {
        let RunContext { thread_id, session_id, origin, trace_id, .. } = &mut self.context;
        (*thread_id, *session_id, *origin, *trace_id) = (None, None, None, None);
        (self.title, self.input, self.metadata, self.tags) = (None, None, Json::empty(), Vec::new());
        (self.head.output, self.head.error) = (None, None);
    }

    /// Whether a running run's producer has been silent for longer than its lease.
    pub fn is_stalled(&self, now: DateTime<Utc>) -> bool {
        let heard = self.heartbeat_at.unwrap_or(self.head.last_event_at).max(self.head.last_event_at);
        self.head.status == Status::Running
            && self.lease_ms.is_some_and(|lease_ms| (now - heard).num_milliseconds() > lease_ms)
    }
}

/// What the steps of one name took, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeTimes {
    /// By their own account.
    pub duration_ms: f64,
    /// The rest of the time between their starts and ends.
    pub waiting_ms: f64,
}

/// What a list is narrowed to.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    pub statuses: Vec<Status>,
    pub thread_id: Option<ThreadId>,
    pub agent: Option<Name>,
    pub tag: Option<Name>,
    pub parent_run_id: Option<RunId>,
    /// All but routers when there are none.
    pub roles: Vec<Role>,
    /// Text the title, the agent or the id contains.
    pub search: Option<String>,
    pub since: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
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
    title: Option<String>,
    input: Option<String>,
    metadata: String,
    tags: Vec<String>,
    lease_ms: Option<i64>,
    heartbeat_at: Option<DateTime<Utc>>,
    status: String,
    last_seq: i64,
    output: Option<String>,
    error: Option<String>,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
    last_event_at: DateTime<Utc>,
}

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
            title: row.title,
            input: row.input.map(Json::trusted),
            metadata: Json::trusted(row.metadata),
            tags: row.tags,
            lease_ms: row.lease_ms,
            heartbeat_at: row.heartbeat_at,
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

impl Store {
    /// One run of this owner.
    pub async fn run(&self, owner: &OwnerId, run: RunId) -> Result<Option<RunRecord>, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query_as!(
                Row,
                r#"select run_id, owner_id, root_run_id, parent_run_id, depth, thread_id, session_id, agent, role,
                          origin_channel, origin_chat, origin_user, trace_id, title, input::text as input,
                          metadata::text as "metadata!", tags, coalesce(j_lease_ms, lease_ms) as "lease_ms?",
                          greatest(heartbeat_at, j_heard_at) as "heartbeat_at?", status, last_seq,
                          output::text as output, error::text as error, created_at, started_at, ended_at, last_event_at
                   from store.run
                   left join (select run_id, lease_ms as j_lease_ms,
                                     lease_until - lease_ms * interval '1 millisecond' as j_heard_at
                              from store.job) j using (run_id)
                   where run_id = $1 and owner_id = $2"#,
                run.uuid(),
                owner.as_str()
            )
            .fetch_optional(&mut *connection)
            .await?;
            row.map(RunRecord::try_from).transpose()
        })
        .await
    }

    /// What the steps of a run took, by the first 256 characters of their names; a step that has not ended does not
    /// count. As the view `node_durations`, whose migration says how.
    pub async fn node_times(&self, owner: &OwnerId, run: RunId) -> Result<BTreeMap<String, NodeTimes>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_file!("backend/store/sql/node_times.sql", run.uuid(), owner.as_str())
                .fetch_all(&mut *connection)
                .await?;
            let times = |duration_ms, waiting_ms| NodeTimes { duration_ms, waiting_ms };
            Ok(rows.into_iter().map(|row| (row.node, times(row.duration_ms, row.waiting_ms))).collect())
        })
        .await
    }

    /// Runs of this owner, newest first, and whether there are more.
    pub async fn runs(
        &self,
        owner: &OwnerId,
        filter: &RunFilter,
        wanted: &Page<(DateTime<Utc>, RunId)>,
    ) -> Result<(Vec<RunRecord>, bool), Error> {
        let roles: Vec<&str> = filter.roles.iter().map(|role| role.as_str()).collect();
        let statuses: Vec<String> = filter.statuses.iter().map(|status| status.as_str().to_owned()).collect();
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"select run_id, owner_id, root_run_id, parent_run_id, depth, thread_id, session_id, agent, role,
                          origin_channel, origin_chat, origin_user, trace_id, title, input::text as input,
                          metadata::text as "metadata!", tags, coalesce(j_lease_ms, lease_ms) as "lease_ms?",
                          greatest(heartbeat_at, j_heard_at) as "heartbeat_at?", status, last_seq,
                          output::text as output, error::text as error, created_at, started_at, ended_at, last_event_at
                   from store.run
                   left join (select run_id, lease_ms as j_lease_ms,
                                     lease_until - lease_ms * interval '1 millisecond' as j_heard_at
                              from store.job) j using (run_id)
                   where owner_id = $1
                     and (cardinality($2::text[]) = 0 or status = any ($2))
                     and ($3::text is null or thread_id = $3)
                     and ($4::text is null or agent = $4)
                     and ($5::text is null or $5 = any (tags))
                     and ($6::uuid is null or parent_run_id = $6)
                     and ($7::text is null or position(lower($7) in lower(coalesce(title, ''))) > 0
                          or position(lower($7) in lower(coalesce(agent, ''))) > 0
                          or position(lower($7) in run_id::text) > 0)
                     and ($8::timestamptz is null or created_at >= $8)
                     and ($9::timestamptz is null or created_at < $9)
                     and ($10::timestamptz is null or (created_at, run_id) < ($10, $11::uuid))
                     and (role = any ($13) or cardinality($13::text[]) = 0 and role <> 'router')
                   order by created_at desc, run_id desc
                   limit $12"#,
                owner.as_str(),
                &statuses,
                filter.thread_id.as_ref().map(ThreadId::as_str),
                filter.agent.as_ref().map(Name::as_str),
                filter.tag.as_ref().map(Name::as_str),
                filter.parent_run_id.map(RunId::uuid),
                filter.search,
                filter.since,
                filter.until,
                wanted.after.map(|(created_at, _)| created_at),
                wanted.after.map(|(_, run)| run.uuid()),
                wanted.limit + 1,
                &roles as &[&str]
            );
            let size = |row: &Row| {
                let texts = [row.input.as_ref(), Some(&row.metadata), row.output.as_ref(), row.error.as_ref()];
                texts.into_iter().flatten().map(String::len).sum()
            };
            let (rows, more) = page(wanted.limit, rows.fetch(&mut *connection), size).await?;
            Ok((rows.into_iter().map(RunRecord::try_from).collect::<Result<_, _>>()?, more))
        })
        .await
    }

    /// The contexts of these runs, for frames of many runs; not narrowed to an owner, so only the relay asks,
    /// and whoever looks whether a principal may answer for it.
    pub(crate) async fn contexts(&self, runs: &[RunId]) -> Result<Vec<RunContext>, Error> {
        let ids: Vec<Uuid> = runs.iter().map(|run| run.uuid()).collect();
        self.maintenance(async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"select run_id, owner_id, root_run_id, parent_run_id, depth, thread_id, session_id, agent, role,
                          origin_channel, origin_chat, origin_user, trace_id, title, null::text as input,
                          '{}' as "metadata!", tags, lease_ms, heartbeat_at, status, last_seq,
                          null::text as output, null::text as error, created_at, started_at, ended_at, last_event_at
                   from store.run where run_id = any ($1)"#,
                &ids
            )
            .fetch_all(&mut *connection)
            .await?;
            rows.into_iter().map(|row| Ok(RunRecord::try_from(row)?.context)).collect()
        })
        .await
    }

    /// Runs of any owner with all that is known of them; only the dispatch asks, for what it gives away.
    pub(super) async fn records(&self, runs: &[Uuid]) -> Result<Vec<RunRecord>, Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"select run_id, owner_id, root_run_id, parent_run_id, depth, thread_id, session_id, agent, role,
                      origin_channel, origin_chat, origin_user, trace_id, title, input::text as input, metadata::text as "metadata!",
                      tags, lease_ms, heartbeat_at, status, last_seq, output::text as output, error::text as error,
                      created_at, started_at, ended_at, last_event_at
               from store.run where run_id = any ($1)"#,
                runs
            )
            .fetch_all(&mut *connection)
            .await?;
            rows.into_iter().map(RunRecord::try_from).collect()
        })
        .await
    }

    /// The descendants of a run that have not ended, the run itself first.
    pub async fn live_tree(&self, owner: &OwnerId, root: RunId) -> Result<Vec<RunId>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_scalar!(
                r#"with recursive tree as (
                       select run_id, depth, status from store.run where run_id = $2 and owner_id = $1
                       union
                       select r.run_id, r.depth, r.status
                       from store.run r join tree t on r.parent_run_id = t.run_id where r.owner_id = $1
                   )
                   select run_id as "run_id!" from tree
                   where status not in ('completed', 'failed', 'cancelled') order by depth limit $3"#,
                owner.as_str(),
                root.uuid(),
                CANCEL_RUNS_MAX
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.into_iter().map(RunId::trusted).collect())
        })
        .await
    }

    /// Renews a producer's lease; `false` when the owner has no such run.
    pub async fn heartbeat(&self, owner: &OwnerId, run: RunId, now: DateTime<Utc>) -> Result<bool, Error> {
        let wait = Duration::from_millis(READ_SHARE_WAIT_MS_MAX);
        let turn = tokio::time::timeout(wait, self.heartbeats.take(owner, 1)).await;
        let _turn = turn.map_err(|_| Error::Busy)?.map_err(|_| Error::timeout())?;
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
