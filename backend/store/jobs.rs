//! Which process executes which run.
//!
//! A claimer serves many owners, so the methods that `dispatch` uses run as the writer on the upkeep connections. A
//! claim names the owner if it is limited to one.

mod sweep;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

pub use self::sweep::SweepResult;
use super::{Error, error::known, runs::RunRecord};
use crate::domain::{
    id::{Name, RunId, Seq},
    job::Claimer,
    limits::{JOB_ATTEMPTS_MAX, JOB_LOOK_OWNERS, JOB_LOOK_ROWS},
    principal::OwnerId,
    run::Status,
};

/// A job and its lease, fresh from the table.
#[derive(Clone, Debug)]
pub struct Leased {
    pub run: RunRecord,
    pub lease_id: Uuid,
    /// 1 for the first assignment.
    pub attempt: i32,
    /// How many earlier holders have let their lease lapse.
    pub lapses: i32,
    /// Whether the last holder has.
    pub has_lapsed: bool,
    pub lease_until: DateTime<Utc>,
}

/// The length of a lease, and its start.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTerm {
    /// `None`, except in tests, for the database's own time, which all servers share.
    pub now: Option<DateTime<Utc>>,
    pub lease_ms: i64,
}

/// The state of a job that is or was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobState {
    pub run_id: RunId,
    pub lease_id: Uuid,
    /// Whether the lease is still the holder's.
    pub held: bool,
    /// `None` if the run no longer exists.
    pub status: Option<Status>,
    pub last_seq: Seq,
}

repository! {
    /// The queue of runs that wait for an executor.
    Jobs, jobs
}

impl Jobs<'_> {
    /// Makes a queued run a job; `false` if there is nothing to do.
    pub async fn enqueue(self, owner: &OwnerId, run: RunId) -> Result<bool, Error> {
        self.maintenance(async |mut connection| {
            let done = sqlx::query_file!("store/sql/enqueue_job.sql", run.uuid(), owner.as_str())
                .execute(&mut *connection)
                .await?;
            Ok(done.rows_affected() == 1)
        })
        .await
    }

    /// Whether the owner has at least `count` jobs.
    pub async fn has_any(self, owner: &OwnerId, count: i64) -> Result<bool, Error> {
        self.scoped(owner, async |mut connection| {
            let reached = sqlx::query_scalar!(
                r#"select exists (select from store.job where owner_id = $1 offset $2) as "reached!""#,
                owner.as_str(),
                count - 1
            )
            .fetch_one(&mut *connection)
            .await?;
            Ok(reached)
        })
        .await
    }

    /// Records that these agents are served.
    pub async fn note_served(self, agents: &[Name], now: Option<DateTime<Utc>>) -> Result<(), Error> {
        let agents: Vec<&str> = agents.iter().map(Name::as_str).collect();
        self.maintenance(async |mut connection| {
            // Always in the same order, since other processes write the same rows.
            sqlx::query!(
                r#"insert into store.served_agent (agent, served_at)
                   select agent, coalesce($2, now()) from unnest($1::text[]) as agent group by agent order by agent
                   on conflict (agent) do update set served_at = greatest(served_agent.served_at, excluded.served_at)"#,
                &agents as &[&str],
                now
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }

    /// Ends the leases of a holder that is known to be gone; returns how many it had.
    pub async fn reclaim(self, holder: &Name, now: Option<DateTime<Utc>>) -> Result<u64, Error> {
        self.maintenance(async |mut connection| {
            let done = sqlx::query!(
                r#"update store.job set lease_until = coalesce($1, now())
                   where lease_until > coalesce($1, now()) and lease_id is not null and runner = $2"#,
                now,
                holder.as_str()
            )
            .execute(&mut *connection)
            .await?;
            Ok(done.rows_affected())
        })
        .await
    }

    /// Assigns as many jobs as there are lease ids, or fewer. Owners take turns; each one's oldest is first.
    pub async fn claim(
        self,
        who: &Claimer,
        agents: &[Name],
        lease_ids: &[Uuid],
        term: LeaseTerm,
    ) -> Result<Vec<Leased>, Error> {
        let agents: Vec<&str> = agents.iter().map(Name::as_str).collect();
        let leases = self
            .maintenance(async |mut connection| {
                let leases = sqlx::query_file_as!(
                    Lease,
                    "store/sql/claim_jobs.sql",
                    &agents as &[&str],
                    who.owner.as_ref().map(OwnerId::as_str),
                    term.now,
                    JOB_ATTEMPTS_MAX,
                    lease_ids,
                    who.name.as_str(),
                    who.session,
                    term.lease_ms,
                    who.own_max,
                    JOB_LOOK_OWNERS,
                    JOB_LOOK_ROWS
                );
                Ok(leases.fetch_all(&mut *connection).await?)
            })
            .await?;
        let jobs = self.with_runs(leases).await;
        if jobs.is_err() {
            // No process knows these leases, so they must not count as lapsed.
            self.release_all(lease_ids).await?;
        }
        jobs
    }

    /// Moves the live leases of a session to a runner that resumes it, under new ids; the old ids become invalid.
    pub async fn adopt(self, who: &Claimer, fresh: &[Uuid], term: LeaseTerm) -> Result<Vec<Leased>, Error> {
        let leases = self
            .maintenance(async |mut connection| {
                let leases = sqlx::query_as!(
                    Lease,
                    r#"with mine as (
                       select run_id, row_number() over (order by created_at, run_id) as n from store.job
                       where session_id = $1 and ($2::text is null or owner_id = $2) and lease_id is not null
                         and lease_until > coalesce($3, now())
                   )
                   update store.job j
                   set lease_id = l.lease_id, runner = $5, lease_ms = $6,
                       lease_until = coalesce($3, now()) + $6::bigint * interval '1 millisecond'
                   from mine join unnest($4::uuid[]) with ordinality l (lease_id, n) on l.n = mine.n
                   where j.run_id = mine.run_id and j.session_id = $1 and j.lease_until > coalesce($3, now())
                   returning j.run_id, j.lease_id as "lease_id!", j.attempt, j.lapses, false as "has_lapsed!",
                             j.lease_until as "lease_until!""#,
                    who.session,
                    who.owner.as_ref().map(OwnerId::as_str),
                    term.now,
                    fresh,
                    who.name.as_str(),
                    term.lease_ms
                )
                .fetch_all(&mut *connection)
                .await?;
                Ok(leases)
            })
            .await?;
        self.with_runs(leases).await
    }

    /// Renews leases; returns those that were renewed. An expired lease is lost, even if no other process has the job.
    pub async fn renew(self, leases: &[Uuid], term: LeaseTerm) -> Result<Vec<Uuid>, Error> {
        self.maintenance(async |mut connection| {
            let renewed = sqlx::query_scalar!(
                r#"update store.job
                   set lease_until = coalesce($2, now()) + $3::bigint * interval '1 millisecond', lease_ms = $3
                   where run_id in (
                       select run_id from store.job where lease_id = any ($1) and lease_until > coalesce($2, now())
                       order by run_id for update)
                     and lease_id = any ($1) and lease_until > coalesce($2, now())
                   returning lease_id as "lease_id!""#,
                leases,
                term.now,
                term.lease_ms
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(renewed)
        })
        .await
    }

    /// Releases a job without spending an attempt; `false` if the lease is no longer the holder's.
    pub async fn release(self, lease: Uuid) -> Result<bool, Error> {
        Ok(self.release_all(&[lease]).await? == 1)
    }

    async fn release_all(self, leases: &[Uuid]) -> Result<u64, Error> {
        self.maintenance(async |mut connection| {
            let done = sqlx::query!(
                "update store.job set lease_id = null, runner = null, session_id = null where lease_id = any ($1)",
                leases
            );
            Ok(done.execute(&mut *connection).await?.rows_affected())
        })
        .await
    }

    /// Leases with their runs, oldest run first.
    async fn with_runs(self, leases: Vec<Lease>) -> Result<Vec<Leased>, Error> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = leases.iter().map(|lease| lease.run_id).collect();
        let runs = self.runs().records(&ids).await?;
        let mut runs: HashMap<Uuid, RunRecord> = runs.into_iter().map(|run| (run.context.run_id.uuid(), run)).collect();
        let jobs = leases.into_iter().filter_map(|lease| {
            let Lease { run_id, lease_id, attempt, lapses, has_lapsed, lease_until } = lease;
            Some(Leased { run: runs.remove(&run_id)?, lease_id, attempt, lapses, has_lapsed, lease_until })
        });
        let mut jobs: Vec<Leased> = jobs.collect();
        jobs.sort_by_key(|job| (job.run.head.created_at, job.run.context.run_id));
        Ok(jobs)
    }

    /// Removes the job of a run that has ended; `false` if it has not, or the lease is no longer the caller's.
    pub async fn finish(self, lease: Uuid) -> Result<bool, Error> {
        self.maintenance(async |mut connection| {
            let done = sqlx::query!(
                r#"delete from store.job j using store.run r
                   where j.lease_id = $1 and r.run_id = j.run_id
                     and store.has_ended(r.status)"#,
                lease
            );
            Ok(done.execute(&mut *connection).await?.rows_affected() == 1)
        })
        .await
    }

    /// The states of held jobs.
    pub async fn states(self, held: &[(RunId, Uuid)]) -> Result<Vec<JobState>, Error> {
        let (runs, leases): (Vec<Uuid>, Vec<Uuid>) = held.iter().map(|(run, lease)| (run.uuid(), *lease)).unzip();
        self.maintenance(async |mut connection| {
            let rows = sqlx::query_as!(
                HeldRow,
                r#"select h.run_id as "run_id!", h.lease_id as "lease_id!", j.run_id is not null as "held!",
                          r.status as "status?", r.last_seq as "last_seq?"
                   from unnest($1::uuid[], $2::uuid[]) as h (run_id, lease_id)
                   left join store.run r on r.run_id = h.run_id
                   left join store.job j on j.run_id = h.run_id and j.lease_id = h.lease_id"#,
                &runs,
                &leases
            )
            .fetch_all(&mut *connection)
            .await?;
            let standing = |row: HeldRow| {
                Ok(JobState {
                    run_id: RunId::trusted(row.run_id),
                    lease_id: row.lease_id,
                    held: row.held,
                    status: row.status.map(|status| known(Status::parse(&status), &status)).transpose()?,
                    last_seq: row.last_seq.and_then(Seq::new).unwrap_or_default(),
                })
            };
            rows.into_iter().map(standing).collect()
        })
        .await
    }
}

struct HeldRow {
    run_id: Uuid,
    lease_id: Uuid,
    held: bool,
    status: Option<String>,
    last_seq: Option<i64>,
}

struct Lease {
    run_id: Uuid,
    lease_id: Uuid,
    attempt: i32,
    lapses: i32,
    has_lapsed: bool,
    lease_until: DateTime<Utc>,
}
