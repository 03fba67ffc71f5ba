//! Interrupts, as seen from outside the run that requested them.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{
    Error,
    append::IMPORTED,
    error::known,
    page::{Page, page},
};
use crate::domain::{
    checkpoint::{CheckpointId, Namespace},
    context::Role,
    id::{Name, RunId, Seq, SpanId, ThreadId},
    interrupt::OWN_EVENT_IDS,
    json::Json,
    limits::INTERRUPT_ROWS,
    principal::OwnerId,
    run::Status,
};

/// An interrupt without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInterrupt {
    pub owner_id: OwnerId,
    pub run_id: RunId,
    pub interrupt_id: SpanId,
    /// As the producer wrote it.
    pub expires_at: Option<String>,
}

/// An open interrupt in the list of all of an owner's.
#[derive(Debug)]
pub struct ListedInterrupt {
    pub run_id: RunId,
    pub interrupt_id: SpanId,
    pub seq: Seq,
    pub requested_at: DateTime<Utc>,
    pub payload: Json,
    pub agent: Option<Name>,
    pub role: Role,
    pub title: Option<String>,
    pub status: Status,
    pub thread_id: Option<String>,
    pub root_run_id: Uuid,
    pub parent_run_id: Option<Uuid>,
}

/// Where a list of interrupts continues: after this time, run and seq.
pub type InterruptKey = (DateTime<Utc>, RunId, Seq);

/// An interrupt of a run, as its executor needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedInterrupt {
    pub run_id: RunId,
    pub interrupt_id: SpanId,
    /// The payload of `interrupt.resolved`.
    pub answer: Option<Json>,
    /// The payload of the `run.resumed` that followed it, if one did.
    pub resumed: Option<Json>,
}

repository! {
    /// Open interrupts.
    Interrupts, interrupts
}

impl Interrupts<'_> {
    /// The interrupts that these runs of one owner have requested, by run, oldest first.
    pub async fn asked(self, owner: &OwnerId, runs: &[RunId]) -> Result<Vec<AskedInterrupt>, Error> {
        let ids: Vec<Uuid> = runs.iter().map(|run| run.uuid()).collect();
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query!(
                r#"select q.run_id, q.span_id as "span_id!", a.payload::text as "answer?", g.payload::text as "resumed?"
                   from (select run_id, span_id, min(seq) as seq from store.run_event
                         where run_id = any ($1) and owner_id = $2 and type = 'interrupt.requested'
                           and span_id is not null
                         group by run_id, span_id) q
                   left join store.run_event a on a.run_id = q.run_id and a.owner_id = $2
                        and a.event_id = $3 || 'interrupt:' || q.span_id
                   left join store.run_event g on g.run_id = q.run_id and g.owner_id = $2
                        and g.event_id = $3 || 'interrupt:' || q.span_id || ':resumed'
                   order by q.run_id, q.seq limit $4"#,
                &ids,
                owner.as_str(),
                OWN_EVENT_IDS,
                INTERRUPT_ROWS
            )
            .fetch_all(&mut *connection)
            .await?;
            let asked = rows.into_iter().map(|row| AskedInterrupt {
                run_id: RunId::trusted(row.run_id),
                interrupt_id: SpanId::trusted(&row.span_id),
                answer: row.answer.map(Json::trusted),
                resumed: row.resumed.map(Json::trusted),
            });
            Ok(asked.collect())
        })
        .await
    }

    /// A page of the open interrupts of an owner's runs, newest first, and whether there are more.
    pub async fn list(
        self,
        owner: &OwnerId,
        Page { after, limit }: &Page<InterruptKey>,
    ) -> Result<(Vec<ListedInterrupt>, bool), Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query!(
                r#"select q.run_id as "run_id!", q.span_id as "span_id!", q.seq as "seq!", q.at as "at!",
                          q.payload::text as "payload!", r.agent, r.role,
                          r.title, r.status, r.thread_id, r.root_run_id, r.parent_run_id
                   from store.run r
                   cross join lateral (
                       select distinct on (e.span_id) e.run_id, e.span_id, e.seq, e.at, e.payload from store.run_event e
                       where e.run_id = r.run_id and e.owner_id = $1 and e.span_id is not null
                         and e.type = 'interrupt.requested' and e.type like 'interrupt.%'
                         and not exists (
                             select from store.run_event a
                             where a.run_id = e.run_id and a.owner_id = $1 and a.span_id = e.span_id
                               and a.type = 'interrupt.resolved' and a.type like 'interrupt.%')
                       order by e.span_id, e.seq
                   ) q
                   where r.owner_id = $1 and not store.has_ended(r.status) and r.role <> 'router'
                     and ($2::timestamptz is null or (q.at, q.run_id, q.seq) < ($2, $3::uuid, $4::bigint))
                   order by q.at desc, q.run_id desc, q.seq desc limit $5"#,
                owner.as_str(),
                after.map(|(at, ..)| at),
                after.map(|(_, run, _)| run.uuid()),
                after.map(|(.., seq)| seq.get()),
                limit + 1
            );
            let (rows, more) = page(*limit, rows.fetch(&mut *connection), |row| row.payload.len()).await?;
            let listed = rows.into_iter().map(|row| {
                Ok(ListedInterrupt {
                    run_id: RunId::trusted(row.run_id),
                    interrupt_id: SpanId::trusted(&row.span_id),
                    seq: Seq::new(row.seq).unwrap_or_default(),
                    requested_at: row.at,
                    payload: Json::trusted(row.payload),
                    agent: row.agent.as_deref().map(Name::trusted),
                    role: known(Role::parse(&row.role), &row.role)?,
                    title: row.title,
                    status: known(Status::parse(&row.status), &row.status)?,
                    thread_id: row.thread_id,
                    root_run_id: row.root_run_id,
                    parent_run_id: row.parent_run_id,
                })
            });
            Ok((listed.collect::<Result<_, Error>>()?, more))
        })
        .await
    }

    /// The open interrupts of one run, oldest first.
    pub async fn open(self, owner: &OwnerId, run: RunId) -> Result<Vec<SpanId>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_scalar!(
                r#"select span_id as "span_id!" from store.run_event
                   where run_id = $1 and owner_id = $2 and span_id is not null and type like 'interrupt.%'
                   group by span_id
                   having bool_or(type = 'interrupt.requested') and not bool_or(type = 'interrupt.resolved')
                   order by min(seq)"#,
                run.uuid(),
                owner.as_str()
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.iter().map(|span| SpanId::trusted(span)).collect())
        })
        .await
    }

    /// The newest checkpoint that a run has put into its thread, preferably in the root namespace.
    pub async fn checkpoint_of_run(
        self,
        owner: &OwnerId,
        thread: &ThreadId,
        run: RunId,
    ) -> Result<Option<(Namespace, CheckpointId)>, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query!(
                r#"select c.ns, c.checkpoint_id
                   from store.checkpoint c
                   join store.thread t on t.thread_no = c.thread_no and t.owner_id = c.owner_id
                   where c.owner_id = $1 and t.thread_id = $2 and c.run_id = $3
                   order by c.ns = '' desc, c.checkpoint_id desc limit 1"#,
                owner.as_str(),
                thread.as_str(),
                run.to_string()
            )
            .fetch_optional(&mut *connection)
            .await?;
            Ok(row.map(|row| (Namespace::trusted(&row.ns), CheckpointId::trusted(&row.checkpoint_id))))
        })
        .await
    }

    /// Open interrupts of all owners' runs that state when they expire, after the given one; not limited to an owner,
    /// so only the sweep may use it. Excludes those of imported runs.
    pub(crate) async fn expiring(self, after: (Uuid, i64)) -> Result<Vec<(i64, OpenInterrupt)>, Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query!(
                r#"select r.owner_id, e.run_id, min(e.seq) as "seq!", e.span_id as "span_id!",
                          (array_agg(e.payload ->> 'expires_at' order by e.seq)
                               filter (where e.type = 'interrupt.requested'))[1] as expires_at
                   from store.run r
                   join store.run_event e on e.run_id = r.run_id
                   where not store.has_ended(r.status) and r.run_id >= $1
                     and r.request_hash <> $4
                     and e.type like 'interrupt.%' and e.span_id is not null
                   group by r.owner_id, e.run_id, e.span_id
                   having not bool_or(e.type = 'interrupt.resolved')
                      and bool_or(e.type = 'interrupt.requested' and e.payload ->> 'expires_at' is not null)
                      and (e.run_id, min(e.seq)) > ($1, $2)
                   order by e.run_id, min(e.seq) limit $3"#,
                after.0,
                after.1,
                INTERRUPT_ROWS,
                IMPORTED.as_slice()
            )
            .fetch_all(&mut *connection)
            .await?;
            let open = rows.into_iter().map(|row| {
                let interrupt = OpenInterrupt {
                    owner_id: OwnerId::trusted(&row.owner_id),
                    run_id: RunId::trusted(row.run_id),
                    interrupt_id: SpanId::trusted(&row.span_id),
                    expires_at: row.expires_at,
                };
                (row.seq, interrupt)
            });
            Ok(open.collect())
        })
        .await
    }
}
