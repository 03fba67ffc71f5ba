//! Waiting and leased jobs, as the owner of the runs sees them.

use chrono::{DateTime, Utc};

use super::{Error, error::known, jobs::Jobs};
use crate::domain::{
    id::{Name, RunId},
    limits::{HELD_ROWS, QUEUED_COUNTED_MAX},
    principal::OwnerId,
    run::Status,
};

/// The number of an agent's runs with a job and this status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedQueue {
    pub agent: Name,
    pub status: Status,
    pub runs: i64,
}

/// A job with a lease, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldJob {
    pub run_id: RunId,
    pub title: Option<String>,
    pub agent: Name,
    pub runner: Name,
    pub lease_until: DateTime<Utc>,
    pub attempt: i32,
}

impl Jobs<'_> {
    /// The owner's number of jobs by agent and status of the run; stops counting at a bound.
    pub async fn queues(self, owner: &OwnerId) -> Result<Vec<CountedQueue>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query!(
                r#"select j.agent, r.status, count(*) as "runs!"
                   from (select run_id, agent from store.job where owner_id = $1 limit $2) j
                   join store.run r on r.run_id = j.run_id and r.owner_id = $1
                   group by j.agent, r.status order by j.agent, r.status"#,
                owner.as_str(),
                QUEUED_COUNTED_MAX
            )
            .fetch_all(&mut *connection)
            .await?;
            let queues = rows.into_iter().map(|row| {
                let status = known(Status::parse(&row.status), &row.status)?;
                Ok(CountedQueue { agent: Name::trusted(&row.agent), status, runs: row.runs })
            });
            queues.collect()
        })
        .await
    }

    /// The owner's jobs with live leases, those that expire first.
    pub async fn held(self, owner: &OwnerId, now: Option<DateTime<Utc>>) -> Result<Vec<HeldJob>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query!(
                r#"select j.run_id, r.title, j.agent, j.runner as "runner!", j.lease_until as "lease_until!", j.attempt
                   from store.job j join store.run r on r.run_id = j.run_id and r.owner_id = $1
                   where j.owner_id = $1 and j.lease_id is not null and j.lease_until > coalesce($2, now())
                   order by j.lease_until, j.run_id limit $3"#,
                owner.as_str(),
                now,
                HELD_ROWS
            )
            .fetch_all(&mut *connection)
            .await?;
            let held = rows.into_iter().map(|row| HeldJob {
                run_id: RunId::trusted(row.run_id),
                title: row.title,
                agent: Name::trusted(&row.agent),
                runner: Name::trusted(&row.runner),
                lease_until: row.lease_until,
                attempt: row.attempt,
            });
            Ok(held.collect())
        })
        .await
    }
}
