//! Removal: the only way events ever leave the log, and it leaves a note.

use chrono::{DateTime, Months, Utc};
use sqlx::Connection as _;

use super::{Error, Store, bounded, wait_for_share};
use crate::domain::{
    id::RunId,
    limits::{IMPORT_MONTHS_MAX, READ_WAIT_MS_MAX},
    principal::OwnerId,
};

/// The outcome of a request to delete a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Done,
    Absent,
    /// Only a run that has ended may be deleted.
    StillLive,
}

impl Store {
    /// Deletes an ended run with its events and artifacts. The artifacts' bytes are removed later, unless another
    /// artifact has the same.
    ///
    /// Writers keep no heads of ended runs in memory, so none can append to a deleted run.
    pub async fn delete_run(&self, owner: &OwnerId, run: RunId) -> Result<Removal, Error> {
        // The connection is not from the pool, so there are few of them, and none for a run that cannot be deleted.
        match self.runs().get(owner, run).await? {
            None => return Ok(Removal::Absent),
            Some(record) if !record.head.status.is_terminal() => return Ok(Removal::StillLive),
            Some(_) => {}
        }
        let _turn = wait_for_share(&self.removals, owner).await?;
        self.remove_run(owner, run).await
    }

    async fn remove_run(&self, owner: &OwnerId, run: RunId) -> Result<Removal, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut connection = self.dedicated("runreel_retention").await?;
            let mut tx = connection.begin().await?;
            sqlx::query_scalar!("select set_config('runreel.owner', $1, true)", owner.as_str())
                .fetch_one(&mut *tx)
                .await?;
            let head = sqlx::query!(
                r#"select lane, last_position, store.has_ended(status) as "ended!"
                   from store.run where run_id = $1 and owner_id = $2"#,
                run.uuid(),
                owner.as_str()
            )
            .fetch_optional(&mut *tx)
            .await?;
            let Some(head) = head else { return Ok(Removal::Absent) };
            if !head.ended {
                return Ok(Removal::StillLive);
            }
            let id = run.uuid();
            let gone = sqlx::query!(
                r#"with gone as (
                       delete from store.run_event where run_id = $1 and owner_id = $2 returning position
                   )
                   select count(*) as "events!", coalesce(array_agg(distinct position / 512), '{}') as "pieces!"
                   from gone"#,
                id,
                owner.as_str()
            )
            .fetch_one(&mut *tx)
            .await?;
            // Feeds' notes of the pieces where nothing of the owner's is left are removed too. The piece that is being
            // written stays: writers have cached that it is noted.
            sqlx::query!(
                r#"delete from store.owner_piece p using store.lane l
                   where p.owner_id = $1 and p.lane = $2 and p.piece = any ($3)
                     and l.lane = p.lane and p.piece < l.position / 512
                     and (select true from store.run_event e
                          where e.lane = p.lane and e.owner_id = p.owner_id
                            and e.position between p.piece * 512 and p.piece * 512 + 511 limit 1) is null"#,
                owner.as_str(),
                head.lane,
                &gone.pieces
            )
            .execute(&mut *tx)
            .await?;
            sqlx::query!("delete from store.artifact where run_id = $1 and owner_id = $2", id, owner.as_str())
                .execute(&mut *tx)
                .await?;
            sqlx::query!("delete from store.run where run_id = $1 and owner_id = $2", id, owner.as_str())
                .execute(&mut *tx)
                .await?;
            sqlx::query!(
                r#"insert into store.removed as r (owner_id, lane, position, events) values ($1, $2, $3, $4)
                   on conflict (owner_id, lane) do update
                   set position = greatest(r.position, excluded.position), events = r.events + excluded.events"#,
                owner.as_str(),
                head.lane,
                head.last_position,
                gone.events
            )
            .execute(&mut *tx)
            .await?;
            tx.commit().await?;
            let _ = connection.close().await;
            Ok(Removal::Done)
        })
        .await
    }

    /// Makes sure that the partition for a run's events exists, which may not be so for an imported one; `false` if
    /// there are so many that no import makes another.
    pub async fn ensure_partition_of(&self, run: RunId) -> Result<bool, Error> {
        let moment = DateTime::from_timestamp_millis(run.unix_ms()).unwrap_or_default();
        self.unscoped(&self.nobody, async |mut connection| {
            let month = moment.format("%Y_%m").to_string();
            let months = sqlx::query!(
                r#"select to_regclass('store.run_event_' || $1::text) is not null as "is_there!",
                          (select count(*) from pg_inherits where inhparent = 'store.run_event'::regclass) as "count!""#,
                month
            )
            .fetch_one(&mut *connection)
            .await?;
            if months.is_there || months.count >= IMPORT_MONTHS_MAX {
                return Ok(months.is_there);
            }
            drop(connection);
            // Creating one waits for current readers of the table, and everything else waits behind it: not for long.
            let mut owner = sqlx::PgConnection::connect_with(&self.options).await?;
            sqlx::raw_sql("set lock_timeout = 1000").execute(&mut owner).await?;
            let next = moment.checked_add_months(Months::new(1)).unwrap_or(moment);
            let made = sqlx::query_scalar!("select store.ensure_partitions($1, -1)", next).fetch_one(&mut owner).await;
            let _ = owner.close().await;
            match made {
                // Another import created it at the same time.
                Err(sqlx::Error::Database(error)) if matches!(error.code().as_deref(), Some("42P07" | "23505")) => {
                    Ok(true)
                }
                made => Ok(made.map(|_| true)?),
            }
        })
        .await
    }

    /// Creates the partitions of the coming months; returns how many were new.
    pub async fn ensure_partitions(&self, now: DateTime<Utc>) -> Result<i32, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut owner = sqlx::PgConnection::connect_with(&self.options).await?;
            // As above: it can be tried again later.
            sqlx::raw_sql("set lock_timeout = 1000").execute(&mut owner).await?;
            let made = sqlx::query_scalar!("select store.ensure_partitions($1, 3)", now).fetch_one(&mut owner).await?;
            let _ = owner.close().await;
            Ok(made.unwrap_or(0))
        })
        .await
    }
}
