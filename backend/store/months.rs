//! Months of the log: the events of all runs whose ids are of one month are a partition, which is dropped as a whole
//! when everything in it is due.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::Connection as _;
use uuid::Uuid;

use super::{
    Error, Store,
    expiry::{EndedTree, Remover, trees},
    retention::{self, act_for},
};
use crate::domain::{
    limits::{MONTH_DROP_TRIES, MONTH_DROP_WAIT_MS},
    principal::OwnerId,
};

/// A month of the log.
#[derive(Clone, Debug)]
pub struct Month {
    /// Year and month, `2026_09`.
    pub name: String,
    /// The least id of a run in it, and that of the next month.
    first: Uuid,
    end: Uuid,
}

/// The trees of some runs of a month, and where to continue; `None` at the end.
#[derive(Debug)]
pub struct MonthPage {
    pub trees: Vec<EndedTree>,
    /// Whether all trees of those runs have ended; `trees` has only the ended ones.
    pub have_ended: bool,
    pub next: Option<Uuid>,
}

/// The outcome of an attempt to drop a month.
#[derive(Clone, Copy, Debug)]
pub enum MonthDrop {
    Done {
        runs: i64,
        events: i64,
    },
    /// Another server dropped it, or a run was added to it or to one of its trees.
    Kept,
    /// Not locked in time because of the log's readers and writers.
    Busy,
}

/// An owner's part of a month, in one lane.
#[derive(Debug)]
pub(super) struct OwnPart {
    pub owner_id: String,
    pub lane: i16,
    pub position: i64,
    pub runs: i64,
    pub events: i64,
}

impl Month {
    /// Whether all runs of a tree are in it.
    pub fn holds(&self, tree: &EndedTree) -> bool {
        tree.runs.iter().all(|run| (self.first..self.end).contains(&run.uuid()))
    }
}

impl Store {
    /// The months that ended before a moment, the oldest first.
    pub async fn months_before(&self, moment: DateTime<Utc>) -> Result<Vec<Month>, Error> {
        self.maintenance(async |mut connection| {
            let months = sqlx::query_as!(
                Month,
                r#"select m.name as "name!", store.first_run_id(m.month at time zone 'UTC') as "first!",
                          store.first_run_id((m.month + interval '1 month') at time zone 'UTC') as "end!"
                   from (select right(c.relname, 7) as name, to_date(right(c.relname, 7), 'YYYY_MM')::timestamp as month
                         from pg_inherits i join pg_class c on c.oid = i.inhrelid
                         where i.inhparent = 'store.run_event'::regclass) m
                   where (m.month + interval '1 month') at time zone 'UTC' <= $1 order by m.month"#,
                moment
            );
            Ok(months.fetch_all(&mut *connection).await?)
        })
        .await
    }

    /// Whether every run of a month ended before a moment.
    pub async fn month_ended_before(&self, month: &Month, moment: DateTime<Utc>) -> Result<bool, Error> {
        self.maintenance(async |mut connection| {
            let ended = sqlx::query_scalar!(
                r#"select not exists (
                       select from store.run where run_id >= $1 and run_id < $2
                         and (ended_at is null or greatest(ended_at, imported_at) >= $3)) as "ended!""#,
                month.first,
                month.end,
                moment
            );
            Ok(ended.fetch_one(&mut *connection).await?)
        })
        .await
    }

    /// The trees of the next `limit` runs of a month.
    pub async fn trees_of_month(&self, month: &Month, after: Option<Uuid>, limit: i64) -> Result<MonthPage, Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query!(
                r#"select run_id, owner_id, root_run_id from store.run
                   where run_id >= $1 and run_id < $2 and run_id > $3 order by run_id limit $4"#,
                month.first,
                month.end,
                after.unwrap_or(Uuid::nil()),
                limit
            )
            .fetch_all(&mut *connection)
            .await?;
            let is_last = i64::try_from(rows.len()).is_ok_and(|rows| rows < limit);
            let next = rows.last().filter(|_| !is_last).map(|last| last.run_id);
            let mut places: Vec<_> = rows.into_iter().map(|row| (row.owner_id, row.root_run_id)).collect();
            places.sort_unstable();
            places.dedup();
            let (owners, roots) = places.into_iter().unzip();
            let trees = trees(&mut connection, roots, owners).await?;
            Ok(MonthPage { trees: trees.ended, have_ended: trees.have_ended, next })
        })
        .await
    }

    async fn owners_of_month(&self, month: &Month) -> Result<Vec<OwnerId>, Error> {
        self.maintenance(async |mut connection| {
            let owners = sqlx::query_scalar!(
                "select distinct owner_id from store.run where run_id >= $1 and run_id < $2 order by owner_id",
                month.first,
                month.end
            );
            Ok(owners.fetch_all(&mut *connection).await?.iter().map(|owner| OwnerId::trusted(owner)).collect())
        })
        .await
    }
}

impl Remover {
    /// Drops a month whose runs have all ended before a moment, in one transaction.
    pub async fn drop_month(
        &mut self,
        store: &Store,
        month: &Month,
        before: DateTime<Utc>,
    ) -> Result<MonthDrop, Error> {
        let owners = store.owners_of_month(month).await?;
        let mut tx = self.connection.begin().await?;
        let mut gone = Vec::new();
        for owner in &owners {
            act_for(&mut tx, owner).await?;
            gone.extend(retention::remove_month_runs(&mut tx, owner, (month.first, month.end), before).await?);
        }
        let (owner_ids, lanes): (Vec<_>, Vec<_>) = gone.iter().map(|own| (own.owner_id.clone(), own.lane)).unzip();
        let (positions, events): (Vec<_>, Vec<_>) = gone.iter().map(|own| (own.position, own.events)).unzip();
        // Takes an exclusive lock, so use a short lock timeout.
        for _ in 0..MONTH_DROP_TRIES {
            let done = sqlx::query_scalar!(
                "select store.drop_month($1, $2, $3, $4, $5)",
                month.name,
                &owner_ids,
                &lanes,
                &positions,
                &events
            );
            match done.fetch_one(&mut *tx).await? {
                Some(true) => {
                    tx.commit().await?;
                    if let Err(error) = self.forget_pieces(&owners).await {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "notes of a dropped month not removed"
                        );
                    }
                    let runs = gone.iter().map(|own| own.runs).sum();
                    return Ok(MonthDrop::Done { runs, events: events.iter().sum() });
                }
                // Without delay, because the transaction holds the log exclusively.
                Some(false) => {
                    tx.rollback().await?;
                    return Ok(MonthDrop::Kept);
                }
                None => tokio::time::sleep(Duration::from_millis(MONTH_DROP_WAIT_MS)).await,
            }
        }
        tx.rollback().await?;
        Ok(MonthDrop::Busy)
    }

    /// Removes the notes of pieces of the log that have no events of these owners left.
    async fn forget_pieces(&mut self, owners: &[OwnerId]) -> Result<(), Error> {
        for owner in owners {
            let mut tx = self.connection.begin().await?;
            act_for(&mut tx, owner).await?;
            retention::forget_pieces(&mut tx, owner).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}
