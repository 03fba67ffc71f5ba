//! Removal: the only way events leave the log, and it is recorded.

use chrono::{DateTime, Months, Utc};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::{Error, Store, bounded, migrate::is_made_meanwhile, months::OwnPart, wait_for_share};
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
        // The connection is not from the pool and there are few of them, so none is opened for a run that cannot be
        // deleted.
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
            act_for(&mut tx, owner).await?;
            let head = sqlx::query_scalar!(
                r#"select store.has_ended(status) as "ended!" from store.run where run_id = $1 and owner_id = $2"#,
                run.uuid(),
                owner.as_str()
            )
            .fetch_optional(&mut *tx)
            .await?;
            match head {
                None => return Ok(Removal::Absent),
                Some(false) => return Ok(Removal::StillLive),
                Some(true) => {}
            }
            remove_runs(&mut tx, owner, &[run.uuid()]).await?;
            tx.commit().await?;
            let _ = connection.close().await;
            Ok(Removal::Done)
        })
        .await
    }

    /// Ensures that the partition for a run's events exists, which may be missing for an imported one; `false` if there
    /// are too many to create another for an import.
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
            let mut owner = self.owner.acquire().await?;
            let next = moment.checked_add_months(Months::new(1)).unwrap_or(moment);
            let made = sqlx::query_scalar!("select store.ensure_partitions($1, -1)", next).fetch_one(&mut *owner).await;
            match made {
                // Another import created it at the same time.
                Err(error) if is_made_meanwhile(&error) => Ok(true),
                made => Ok(made.map(|_| true)?),
            }
        })
        .await
    }

    /// Creates the partitions of the coming months; returns how many were new.
    pub async fn ensure_partitions(&self, now: DateTime<Utc>) -> Result<i32, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut owner = self.owner.acquire().await?;
            loop {
                let made = sqlx::query_scalar!("select store.ensure_partitions($1, 3)", now);
                match made.fetch_one(&mut *owner).await {
                    Err(error) if is_made_meanwhile(&error) => {}
                    made => return Ok(made?.unwrap_or(0)),
                }
            }
        })
        .await
    }
}

/// Lets a transaction of the retention role see one owner's rows.
pub(super) async fn act_for(tx: &mut PgConnection, owner: &OwnerId) -> Result<(), Error> {
    let set = sqlx::query_scalar!("select set_config('runreel.owner', $1, true)", owner.as_str());
    set.fetch_one(tx).await?;
    Ok(())
}

/// Removes ended runs of one owner with their events and artifacts, and records it for feeds; returns how many events.
pub(super) async fn remove_runs(tx: &mut PgConnection, owner: &OwnerId, runs: &[Uuid]) -> Result<i64, Error> {
    let lanes = sqlx::query!(
        r#"select lane, max(last_position) as "last_position!", array_agg(run_id) as "runs!"
           from store.run where run_id = any ($1) and owner_id = $2 group by lane order by lane"#,
        runs,
        owner.as_str()
    );
    let mut events = 0;
    for lane in lanes.fetch_all(&mut *tx).await? {
        events += remove_in_lane(tx, owner, (lane.lane, lane.last_position), &lane.runs).await?;
    }
    Ok(events)
}

async fn remove_in_lane(
    tx: &mut PgConnection,
    owner: &OwnerId,
    (lane, last_position): (i16, i64),
    runs: &[Uuid],
) -> Result<i64, Error> {
    let gone = sqlx::query!(
        r#"with gone as (
               delete from store.run_event where run_id = any ($1) and owner_id = $2 returning position
           )
           select count(*) as "events!", coalesce(array_agg(distinct position / 512), '{}') as "pieces!"
           from gone"#,
        runs,
        owner.as_str()
    );
    let gone = gone.fetch_one(&mut *tx).await?;
    // Also removes the notes of pieces that have no events of the owner left. The piece that is being written stays:
    // writers have cached that it is noted. The `order by` makes the planner use the index of positions, whatever it
    // estimates: after a full scan it would have to sort.
    let pieces = sqlx::query!(
        r#"delete from store.owner_piece p using store.lane l
           where p.owner_id = $1 and p.lane = $2 and p.piece = any ($3)
             and l.lane = p.lane and p.piece < l.position / 512
             and (select true from store.run_event e
                  where e.lane = p.lane and e.owner_id = p.owner_id
                    and e.position between p.piece * 512 and p.piece * 512 + 511
                  order by e.position limit 1) is null"#,
        owner.as_str(),
        lane,
        &gone.pieces
    );
    pieces.execute(&mut *tx).await?;
    let artifacts =
        sqlx::query!("delete from store.artifact where run_id = any ($1) and owner_id = $2", runs, owner.as_str());
    artifacts.execute(&mut *tx).await?;
    // Records that what a seal names was removed here, and not by tampering.
    let rows = sqlx::query!(
        r#"with gone as (
               delete from store.run where run_id = any ($1) and owner_id = $2 returning run_id, last_seq, link
           )
           insert into store.removed_run (run_id, owner_id, last_seq, link) select run_id, $2, last_seq, link from gone"#,
        runs,
        owner.as_str()
    );
    rows.execute(&mut *tx).await?;
    let note = sqlx::query!(
        r#"insert into store.removed as r (owner_id, lane, position, events) values ($1, $2, $3, $4)
           on conflict (owner_id, lane) do update
           set position = greatest(r.position, excluded.position), events = r.events + excluded.events"#,
        owner.as_str(),
        lane,
        last_position,
        gone.events
    );
    note.execute(&mut *tx).await?;
    Ok(gone.events)
}

/// Removes the runs of one owner whose ids are in a range and which ended before a moment, with their artifacts; their
/// events are dropped with their partition.
pub(super) async fn remove_month_runs(
    tx: &mut PgConnection,
    owner: &OwnerId,
    (first, end): (Uuid, Uuid),
    before: DateTime<Utc>,
) -> Result<Vec<OwnPart>, Error> {
    let artifacts = sqlx::query!(
        "delete from store.artifact where run_id >= $1 and run_id < $2 and owner_id = $3",
        first,
        end,
        owner.as_str()
    );
    artifacts.execute(&mut *tx).await?;
    let parts = sqlx::query_as!(
        OwnPart,
        r#"with gone as (
               delete from store.run where run_id >= $1 and run_id < $2 and owner_id = $3
                 and greatest(ended_at, imported_at) < $4
               returning run_id, lane, last_position, last_seq, link
           ), noted as (
               insert into store.removed_run (run_id, owner_id, last_seq, link)
               select run_id, $3, last_seq, link from gone
           )
           select $3 as "owner_id!", lane, max(last_position) as "position!", count(*) as "runs!",
                  sum(last_seq)::bigint as "events!"
           from gone group by lane order by lane"#,
        first,
        end,
        owner.as_str(),
        before
    );
    Ok(parts.fetch_all(&mut *tx).await?)
}

/// Removes an owner's notes of all completely written pieces that have no events of the owner left.
pub(super) async fn forget_pieces(tx: &mut PgConnection, owner: &OwnerId) -> Result<(), Error> {
    let pieces = sqlx::query!(
        r#"delete from store.owner_piece p using store.lane l
           where p.owner_id = $1 and l.lane = p.lane and p.piece < l.position / 512
             and (select true from store.run_event e
                  where e.lane = p.lane and e.owner_id = p.owner_id
                    and e.position between p.piece * 512 and p.piece * 512 + 511
                  order by e.position limit 1) is null"#,
        owner.as_str()
    );
    pieces.execute(&mut *tx).await?;
    Ok(())
}
