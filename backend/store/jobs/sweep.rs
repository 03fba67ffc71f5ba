//! Jobs without an active holder.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Jobs;
use crate::{
    domain::{
        id::{Name, RunId},
        limits::{JOB_ATTEMPTS_MAX, JOB_SWEEP_ROWS, JOB_UNSERVED_MS_MAX},
        principal::OwnerId,
    },
    store::Error,
};

/// The result of a sweep.
#[derive(Clone, Debug, Default)]
pub struct SweepResult {
    /// Removed rows: of ended runs, and of runs that are not executed through jobs.
    pub removed: u64,
    /// The ended ones among them, which may have left state behind.
    pub ended: Vec<(OwnerId, RunId)>,
    /// Jobs whose holders have all let their lease lapse, with the last lease of each.
    pub spent: Vec<(OwnerId, RunId, Uuid)>,
    /// Runs of messages whose agent no process has served for a while.
    pub unserved: Vec<(OwnerId, RunId, Name)>,
    /// Where the next sweep begins; `None` after the last row.
    pub next: Option<Uuid>,
    /// Whether there are no jobs at all.
    pub is_idle: bool,
}

impl Jobs<'_> {
    /// Checks some jobs after the given one: removes those that no longer need to be jobs, takes suspended ones from
    /// holders whose lease lapsed, and returns those that have spent their attempts.
    pub async fn sweep(self, after: Option<Uuid>, now: Option<DateTime<Utc>>) -> Result<SweepResult, Error> {
        self.maintenance(async |mut connection| {
            let page = sqlx::query_scalar!(
                "select run_id from store.job where run_id > $1 order by run_id limit $2",
                after.unwrap_or(Uuid::nil()),
                JOB_SWEEP_ROWS
            )
            .fetch_all(&mut *connection)
            .await?;
            if after.is_none() && page.is_empty() {
                return Ok(SweepResult { is_idle: true, ..SweepResult::default() });
            }
            let removed = sqlx::query!(
                r#"delete from store.job j using store.run r
                   where j.run_id = any ($1) and r.run_id = j.run_id
                     and (store.has_ended(r.status) or j.attempt = 0 and r.status <> 'queued')
                   returning j.owner_id, j.run_id, store.has_ended(r.status) as "has_ended!""#,
                &page
            )
            .fetch_all(&mut *connection)
            .await?;
            let ended = removed.iter().filter(|row| row.has_ended);
            let ended = ended.map(|row| (OwnerId::trusted(&row.owner_id), RunId::trusted(row.run_id))).collect();
            let removed = removed.len() as u64;
            sqlx::query!(
                r#"update store.job j set lease_id = null, runner = null, session_id = null
                   where j.lease_id is not null and j.lease_until <= coalesce($1, now())
                     and (select r.status from store.run r where r.run_id = j.run_id) in ('waiting', 'interrupted')"#,
                now
            )
            .execute(&mut *connection)
            .await?;
            let spent = sqlx::query!(
                r#"select j.owner_id, j.run_id, j.lease_id as "lease_id!" from store.job j
                   where j.lease_id is not null and j.lease_until <= coalesce($1, now()) and j.lapses + 1 >= $2
                     and (select r.status from store.run r where r.run_id = j.run_id) in ('queued', 'running')
                   order by j.lease_until limit $3"#,
                now,
                JOB_ATTEMPTS_MAX,
                JOB_SWEEP_ROWS
            )
            .fetch_all(&mut *connection)
            .await?;
            let spent = spent
                .into_iter()
                .map(|row| (OwnerId::trusted(&row.owner_id), RunId::trusted(row.run_id), row.lease_id))
                .collect();
            let unserved = unserved(&mut connection, &page, now).await?;
            let whole = page.len() as i64 == JOB_SWEEP_ROWS;
            let next = page.last().copied().filter(|_| whole);
            Ok(SweepResult { removed, ended, spent, unserved, next, is_idle: false })
        })
        .await
    }
}

/// The jobs among these whose agent no process has served for a while.
async fn unserved(
    connection: &mut PgConnection,
    page: &[Uuid],
    now: Option<DateTime<Utc>>,
) -> Result<Vec<(OwnerId, RunId, Name)>, Error> {
    let rows = sqlx::query!(
        r#"select j.owner_id, j.run_id, j.agent from store.job j
           join store.run r on r.run_id = j.run_id
           cross join (select coalesce($2, now()) as now,
                              coalesce($2, now()) - $3::bigint * interval '1 millisecond' as since) t
           where j.run_id = any ($1) and j.attempt = 0 and r.status = 'queued' and r.origin_channel is not null
             and j.created_at <= t.since
             and not exists (select from store.served_agent s where s.agent = j.agent and s.served_at > t.since)
             -- Whoever is busy asks for no more.
             and not exists (select from store.job w
                             where w.agent = j.agent and w.lease_id is not null and w.lease_until > t.now)"#,
        page,
        now,
        JOB_UNSERVED_MS_MAX
    )
    .fetch_all(connection)
    .await?;
    let unserved = rows
        .into_iter()
        .map(|row| (OwnerId::trusted(&row.owner_id), RunId::trusted(row.run_id), Name::trusted(&row.agent)));
    Ok(unserved.collect())
}
