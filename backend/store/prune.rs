//! Removal of checkpoints (deletion, pruning, expiry), and copying them to another thread.
//!
//! A value is removed when no checkpoint of its thread refers to it any more. Every removal locks the threads' rows
//! first, as does every put of a checkpoint, so no value is removed from under a checkpoint that is being stored.

mod old;

use crate::store::threads::Threads;
use std::ops::AddAssign;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::Error;
use crate::domain::{checkpoint::MadeBy, id::ThreadId, principal::OwnerId};

/// How much was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub threads: i64,
    pub checkpoints: i64,
    pub writes: i64,
    pub blobs: i64,
}

impl AddAssign for Pruned {
    fn add_assign(&mut self, other: Self) {
        self.threads += other.threads;
        self.checkpoints += other.checkpoints;
        self.writes += other.writes;
        self.blobs += other.blobs;
    }
}

/// The outcome of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// Done; `created` if the target thread is new.
    Done { created: bool },
    /// There is no such thread to copy.
    Absent,
    /// The target has checkpoints that are not the source's.
    Taken,
}

impl Threads<'_> {
    /// Deletes threads with everything in them; ids that match no thread of the owner are ignored.
    pub async fn delete(self, owner: &OwnerId, threads: &[ThreadId]) -> Result<Pruned, Error> {
        let ids: Vec<String> = threads.iter().map(|thread| thread.as_str().to_owned()).collect();
        self.transaction(owner, async |mut tx| {
            let numbers = lock(&mut tx, owner, &ids).await?;
            let gone = remove(&mut tx, owner, &numbers).await?;
            tx.commit().await?;
            Ok(gone)
        })
        .await
    }

    /// Keeps only the newest checkpoint of each namespace of these threads, with its values and writes.
    pub async fn keep_latest(self, owner: &OwnerId, threads: &[ThreadId]) -> Result<Pruned, Error> {
        let ids: Vec<String> = threads.iter().map(|thread| thread.as_str().to_owned()).collect();
        self.transaction(owner, async |mut tx| {
            let numbers = lock(&mut tx, owner, &ids).await?;
            // A write whose checkpoint has not arrived yet stays: writes are removed with deleted checkpoints.
            let row = sqlx::query!(
                r#"with head as materialized (
                       select thread_no, ns, max(checkpoint_id) as checkpoint_id from store.checkpoint
                       where thread_no = any ($2) and owner_id = $1 group by thread_no, ns
                   ), old as (
                       delete from store.checkpoint c using head h
                       where c.thread_no = h.thread_no and c.ns = h.ns and c.owner_id = $1
                         and c.checkpoint_id <> h.checkpoint_id
                       returning c.thread_no, c.ns, c.checkpoint_id
                   ), written as (
                       delete from store.pending_write w using old o
                       where w.thread_no = o.thread_no and w.ns = o.ns and w.checkpoint_id = o.checkpoint_id
                         and w.owner_id = $1
                       returning 1
                   ), orphaned as (
                       update store.checkpoint c set parent_id = null from head h
                       where c.thread_no = h.thread_no and c.ns = h.ns and c.checkpoint_id = h.checkpoint_id
                         and c.owner_id = $1 and c.parent_id is not null
                   )
                   select (select count(*) from old) as "checkpoints!", (select count(*) from written) as "writes!""#,
                owner.as_str(),
                &numbers
            )
            .fetch_one(&mut *tx)
            .await?;
            let blobs = drop_unused_blobs(&mut tx, owner, &numbers).await?;
            tx.commit().await?;
            Ok(Pruned { threads: 0, checkpoints: row.checkpoints, writes: row.writes, blobs })
        })
        .await
    }

    /// Removes the checkpoints that these runs made, with their writes.
    pub async fn delete_for_runs(self, owner: &OwnerId, runs: &[MadeBy]) -> Result<Pruned, Error> {
        let runs: Vec<String> = runs.iter().map(|run| run.as_str().to_owned()).collect();
        self.transaction(owner, async |mut tx| {
            let numbers = sqlx::query_scalar!(
                r#"select t.thread_no from store.thread t
                   where t.owner_id = $1 and t.thread_no in
                         (select c.thread_no from store.checkpoint c where c.owner_id = $1 and c.run_id = any ($2))
                   order by t.thread_no for update"#,
                owner.as_str(),
                &runs
            )
            .fetch_all(&mut *tx)
            .await?;
            let row = sqlx::query!(
                r#"with old as (
                       delete from store.checkpoint c
                       where c.thread_no = any ($3) and c.owner_id = $1 and c.run_id = any ($2)
                       returning c.thread_no, c.ns, c.checkpoint_id
                   ), written as (
                       delete from store.pending_write w using old o
                       where w.thread_no = o.thread_no and w.ns = o.ns and w.checkpoint_id = o.checkpoint_id
                         and w.owner_id = $1
                       returning 1
                   )
                   select (select count(*) from old) as "checkpoints!", (select count(*) from written) as "writes!""#,
                owner.as_str(),
                &runs,
                &numbers
            )
            .fetch_one(&mut *tx)
            .await?;
            let blobs = drop_unused_blobs(&mut tx, owner, &numbers).await?;
            tx.commit().await?;
            Ok(Pruned { threads: 0, checkpoints: row.checkpoints, writes: row.writes, blobs })
        })
        .await
    }

    /// Copies the contents of a thread into another one, which must hold nothing else. Repeating it changes nothing.
    pub async fn copy(
        self,
        owner: &OwnerId,
        from: &ThreadId,
        to: &ThreadId,
        now: DateTime<Utc>,
    ) -> Result<Copied, Error> {
        self.transaction(owner, async |mut tx| {
            // An existing target is only locked together with the source, in one order, or two copies could deadlock.
            let created = sqlx::query!(
                r#"insert into store.thread (owner_id, thread_id, metadata, ttl_s, created_at, updated_at)
                   select owner_id, $3, metadata, ttl_s, $4, $4 from store.thread
                   where owner_id = $1 and thread_id = $2 on conflict do nothing"#,
                owner.as_str(),
                from.as_str(),
                to.as_str(),
                now
            )
            .execute(&mut *tx)
            .await?
            .rows_affected()
                == 1;
            let both = sqlx::query!(
                r#"select thread_no, thread_id = $2 as "is_source!" from store.thread
                   where owner_id = $1 and thread_id in ($2, $3) order by thread_no for update"#,
                owner.as_str(),
                from.as_str(),
                to.as_str()
            )
            .fetch_all(&mut *tx)
            .await?;
            let number = |source: bool| both.iter().find(|row| row.is_source == source).map(|row| row.thread_no);
            let (Some(source), Some(target)) = (number(true), number(false)) else { return Ok(Copied::Absent) };
            let taken = sqlx::query_scalar!(
                r#"select exists (
                       select from store.checkpoint c where c.thread_no = $3 and c.owner_id = $1 and not exists (
                           select from store.checkpoint s where s.thread_no = $2 and s.owner_id = $1 and s.ns = c.ns
                             and s.checkpoint_id = c.checkpoint_id and s.t = c.t and s.b = c.b
                             and s.parent_id is not distinct from c.parent_id
                             and s.run_id is not distinct from c.run_id
                             and s.metadata::text = c.metadata::text and s.versions::text = c.versions::text))
                   or exists (
                       select from store.blob c where c.thread_no = $3 and c.owner_id = $1 and not exists (
                           select from store.blob s where s.thread_no = $2 and s.owner_id = $1 and s.ns = c.ns
                             and s.channel = c.channel and s.version = c.version and s.t = c.t and s.b = c.b))
                       as "taken!""#,
                owner.as_str(),
                source,
                target
            )
            .fetch_one(&mut *tx)
            .await?;
            if taken {
                return Ok(Copied::Taken);
            }
            sqlx::query_file!("store/sql/copy_thread.sql", owner.as_str(), source, target, now)
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(Copied::Done { created })
        })
        .await
    }

    /// Removes up to `limit` threads of all owners that have been unused for longer than their time to live (`ttl_s` if
    /// they have none of their own; `None` is never) and have no run that has not ended.
    pub async fn delete_expired(self, ttl_s: Option<i64>, now: DateTime<Utc>, limit: i64) -> Result<Pruned, Error> {
        let expired = self.maintenance(async |mut connection| {
            let rows = sqlx::query!(
                r#"select owner_id, thread_no from store.thread
                   where coalesce(ttl_s, $1) > 0 and updated_at < $2::timestamptz - make_interval(secs => coalesce(ttl_s, $1))
                     and not exists (
                         select from store.run r
                         where r.owner_id = thread.owner_id and r.thread_id = thread.thread_id
                           and not store.has_ended(r.status))
                   order by owner_id, thread_no limit $3"#,
                ttl_s,
                now,
                limit
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows)
        })
        .await?;
        let mut gone = Pruned::default();
        for row in expired {
            // Each in its own transaction: one that is too large to be removed in time must not hold up the others.
            match self.delete_if_expired(&OwnerId::trusted(&row.owner_id), row.thread_no, ttl_s, now).await {
                Ok(one) => gone += one,
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "expired thread not removed"),
            }
        }
        Ok(gone)
    }

    /// Checks again under the lock, and without waiting for it: the thread may be in use again, or another process may
    /// be removing it.
    async fn delete_if_expired(
        self,
        owner: &OwnerId,
        thread_no: i64,
        ttl_s: Option<i64>,
        now: DateTime<Utc>,
    ) -> Result<Pruned, Error> {
        self.transaction(owner, async |mut tx| {
            let numbers = sqlx::query_scalar!(
                r#"select thread_no from store.thread
                   where thread_no = $3 and owner_id = $4
                     and coalesce(ttl_s, $1) > 0
                     and updated_at < $2::timestamptz - make_interval(secs => coalesce(ttl_s, $1))
                     and not exists (
                         select from store.run r
                         where r.owner_id = thread.owner_id and r.thread_id = thread.thread_id
                           and not store.has_ended(r.status))
                   for update skip locked"#,
                ttl_s,
                now,
                thread_no,
                owner.as_str()
            )
            .fetch_all(&mut *tx)
            .await?;
            let gone = remove(&mut tx, owner, &numbers).await?;
            tx.commit().await?;
            Ok(gone)
        })
        .await
    }
}

/// Locks the owner's threads with these ids, always in the same order, and returns their numbers.
async fn lock(tx: &mut PgConnection, owner: &OwnerId, threads: &[String]) -> Result<Vec<i64>, Error> {
    let numbers = sqlx::query_scalar!(
        r#"select thread_no from store.thread where owner_id = $1 and thread_id = any ($2)
           order by thread_no for update"#,
        owner.as_str(),
        threads
    )
    .fetch_all(tx)
    .await?;
    Ok(numbers)
}

/// Removes locked threads with everything in them.
async fn remove(tx: &mut PgConnection, owner: &OwnerId, numbers: &[i64]) -> Result<Pruned, Error> {
    let row = sqlx::query!(
        r#"with checkpoints as (
               delete from store.checkpoint where thread_no = any ($2) and owner_id = $1 returning 1
           ), writes as (
               delete from store.pending_write where thread_no = any ($2) and owner_id = $1 returning 1
           ), blobs as (
               delete from store.blob where thread_no = any ($2) and owner_id = $1 returning 1
           )
           select (select count(*) from checkpoints) as "checkpoints!", (select count(*) from writes) as "writes!",
                  (select count(*) from blobs) as "blobs!""#,
        owner.as_str(),
        numbers
    )
    .fetch_one(&mut *tx)
    .await?;
    let threads =
        sqlx::query!("delete from store.thread where thread_no = any ($2) and owner_id = $1", owner.as_str(), numbers)
            .execute(&mut *tx)
            .await?
            .rows_affected();
    let threads = i64::try_from(threads).unwrap_or(i64::MAX);
    Ok(Pruned { threads, checkpoints: row.checkpoints, writes: row.writes, blobs: row.blobs })
}

/// Removes the values of locked threads that no checkpoint refers to.
async fn drop_unused_blobs(tx: &mut PgConnection, owner: &OwnerId, numbers: &[i64]) -> Result<i64, Error> {
    let gone = sqlx::query!(
        r#"with used as materialized (
               select distinct c.thread_no, c.ns, v.channel, v.version::text as version
               from store.checkpoint c cross join lateral json_each(c.versions) as v (channel, version)
               where c.thread_no = any ($2) and c.owner_id = $1
           )
           delete from store.blob b
           where b.thread_no = any ($2) and b.owner_id = $1 and not exists (
               select from used u where u.thread_no = b.thread_no and u.ns = b.ns and u.channel = b.channel
                 and u.version = b.version)"#,
        owner.as_str(),
        numbers
    )
    .execute(tx)
    .await?;
    Ok(i64::try_from(gone.rows_affected()).unwrap_or(i64::MAX))
}
