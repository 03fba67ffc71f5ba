//! Old checkpoints of the engine in threads that are still in use.

use crate::store::threads::Threads;
use chrono::{DateTime, Utc};

use super::{Pruned, drop_unused_blobs};
use crate::{domain::principal::OwnerId, store::Error};

impl Threads<'_> {
    /// Of the engine's checkpoints, keeps the newest `keep` of each thread, and the newest of every run that has not
    /// ended. Checks up to `limit` threads of all owners that were used after `since`.
    pub async fn prune_old(self, keep: i64, since: DateTime<Utc>, limit: i64) -> Result<Pruned, Error> {
        let threads = self
            .maintenance(async |mut connection| {
                let threads = sqlx::query!(
                    r#"select t.owner_id, t.thread_no from store.thread t
                   where t.updated_at > $1 and exists (
                       select from store.checkpoint c where c.thread_no = t.thread_no and c.ns = '' offset $2)
                   order by t.owner_id, t.thread_no limit $3"#,
                    since,
                    keep,
                    limit
                );
                Ok(threads.fetch_all(&mut *connection).await?)
            })
            .await?;
        let mut gone = Pruned::default();
        for thread in threads {
            // Each in its own transaction: one that is too large to be removed in time must not hold up the others.
            match self.prune_thread(&OwnerId::trusted(&thread.owner_id), thread.thread_no, keep).await {
                Ok(one) => gone += one,
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "old checkpoints not pruned"),
            }
        }
        Ok(gone)
    }

    /// Skips a thread that is locked now: it will be checked again.
    async fn prune_thread(self, owner: &OwnerId, thread_no: i64, keep: i64) -> Result<Pruned, Error> {
        self.transaction(owner, async |mut tx| {
            let numbers = sqlx::query_scalar!(
                "select thread_no from store.thread where thread_no = $2 and owner_id = $1 for update skip locked",
                owner.as_str(),
                thread_no
            );
            let numbers = numbers.fetch_all(&mut *tx).await?;
            let row = sqlx::query!(
                r#"with made as materialized (
                       select c.checkpoint_id, c.run_id,
                              row_number() over (order by c.checkpoint_id desc) as age,
                              row_number() over (partition by c.run_id order by c.checkpoint_id desc) as age_in_run
                       from store.checkpoint c
                       where c.thread_no = any ($2) and c.owner_id = $1 and c.ns = ''
                         and c.metadata->>'source' = 'graph'
                   ), old as (
                       delete from store.checkpoint c using made m
                       where c.thread_no = any ($2) and c.owner_id = $1 and c.ns = '' and c.checkpoint_id = m.checkpoint_id
                         and m.age > $3 and not (m.age_in_run = 1 and exists (
                             select from store.run r join store.thread t using (owner_id, thread_id)
                             where t.thread_no = any ($2) and t.owner_id = $1 and r.run_id::text = m.run_id
                               and not store.has_ended(r.status)))
                       returning c.thread_no, c.checkpoint_id
                   ), written as (
                       delete from store.pending_write w using old o
                       where w.thread_no = o.thread_no and w.ns = '' and w.checkpoint_id = o.checkpoint_id
                         and w.owner_id = $1
                       returning 1
                   ), orphaned as (
                       update store.checkpoint c set parent_id = null from old o
                       where c.thread_no = o.thread_no and c.owner_id = $1 and c.ns = '' and c.parent_id = o.checkpoint_id
                         and not exists (select from old x where x.checkpoint_id = c.checkpoint_id)
                   )
                   select (select count(*) from old) as "checkpoints!", (select count(*) from written) as "writes!""#,
                owner.as_str(),
                &numbers,
                keep
            );
            let row = row.fetch_one(&mut *tx).await?;
            let blobs = drop_unused_blobs(&mut tx, owner, &numbers).await?;
            tx.commit().await?;
            Ok(Pruned { threads: 0, checkpoints: row.checkpoints, writes: row.writes, blobs })
        })
        .await
    }
}
