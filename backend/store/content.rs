//! The bytes in the artifact store: claimed by uploads, locked by removals.

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};

use super::{Error, artifacts::Artifacts, bounded, wait_for_share};
use crate::domain::{artifact::Hash, limits::READ_WAIT_MS_MAX, principal::OwnerId};

/// A content that cannot be claimed while this lives.
#[derive(Debug)]
pub struct LockedContent {
    connection: PgConnection,
}

impl Artifacts<'_> {
    /// Announces that these bytes are about to be stored under their hashes; from now on they are not removed for a
    /// while.
    ///
    /// Waits for a removal of one of them that is under way.
    pub async fn claim_content(
        self,
        owner: &OwnerId,
        content: &[(Hash, u64)],
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        let mut content = content.to_vec();
        content.sort_unstable();
        content.dedup();
        let hashes: Vec<Vec<u8>> = content.iter().map(|(hash, _)| hash.as_bytes().to_vec()).collect();
        let sizes: Vec<i64> = content.iter().map(|(_, size)| signed(*size)).collect();
        let _turn = wait_for_share(&self.claims, owner).await?;
        self.maintenance(async |mut connection| {
            sqlx::query!(
                r#"insert into store.content as c (sha256, size, loose_since)
                   select n.sha256, n.size, $3 from unnest($1::bytea[], $2::bigint[]) as n(sha256, size) order by 1
                   on conflict (sha256) do update set loose_since = excluded.loose_since"#,
                &hashes,
                &sizes,
                now
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }

    /// Records bytes that are in the store but unknown to the database; returns how many there were.
    pub async fn note_content(self, content: &[(Hash, u64)], now: DateTime<Utc>) -> Result<u64, Error> {
        let hashes: Vec<Vec<u8>> = content.iter().map(|(hash, _)| hash.as_bytes().to_vec()).collect();
        let sizes: Vec<i64> = content.iter().map(|(_, size)| signed(*size)).collect();
        self.maintenance(async |mut connection| {
            let done = sqlx::query!(
                r#"insert into store.content (sha256, size, loose_since)
                   select n.sha256, n.size, $3 from unnest($1::bytea[], $2::bigint[]) as n(sha256, size) order by 1
                   on conflict (sha256) do nothing"#,
                &hashes,
                &sizes,
                now
            )
            .execute(&mut *connection)
            .await?;
            Ok(done.rows_affected())
        })
        .await
    }

    /// Contents that may have had no artifact since before `before`, oldest first.
    pub async fn loose_content(self, before: DateTime<Utc>, limit: i64) -> Result<Vec<Hash>, Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query_scalar!(
                "select sha256 from store.content where loose_since < $1 order by loose_since limit $2",
                before,
                limit
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.iter().filter_map(|bytes| Hash::from_bytes(bytes)).collect())
        })
        .await
    }

    /// Locks a content to remove its bytes; `None` if an artifact has it, it has just been claimed, or another process
    /// is removing it.
    ///
    /// On a connection of its own, because the lock is held while the bytes are removed.
    pub async fn seize_content(self, hash: Hash, before: DateTime<Utc>) -> Result<Option<LockedContent>, Error> {
        let mut connection = self.dedicated("runreel_writer").await?;
        bounded(READ_WAIT_MS_MAX, async {
            // Begun by hand, because the transaction outlives this function; dropping the connection rolls it back. The
            // idle timeout is disabled: with a slow store, or after a pause of this process, bytes would be removed
            // that have been uploaded again in the meantime.
            sqlx::raw_sql("begin; set local idle_in_transaction_session_timeout = 0").execute(&mut connection).await?;
            let held = sqlx::query_scalar!(
                "select true from store.content where sha256 = $1 and loose_since < $2 for update skip locked",
                hash.as_bytes(),
                before
            )
            .fetch_optional(&mut connection)
            .await?;
            if held.is_none() {
                return Ok(None);
            }
            // A separate statement: it sees every artifact that was inserted before the row was locked, and none can be
            // inserted from now on.
            let removed = sqlx::query!(
                r#"delete from store.content c where c.sha256 = $1
                   and not exists (select from store.artifact a where a.sha256 = c.sha256)"#,
                hash.as_bytes()
            )
            .execute(&mut connection)
            .await?;
            if removed.rows_affected() == 1 {
                return Ok(Some(LockedContent { connection }));
            }
            sqlx::query!("update store.content set loose_since = null where sha256 = $1", hash.as_bytes())
                .execute(&mut connection)
                .await?;
            sqlx::raw_sql("commit").execute(&mut connection).await?;
            let _ = connection.close().await;
            Ok(None)
        })
        .await
    }
}

impl LockedContent {
    /// Records that the bytes are gone. If dropped instead, the transaction is rolled back and the content will be
    /// found again.
    pub async fn gone(mut self) -> Result<(), Error> {
        bounded(READ_WAIT_MS_MAX, async {
            sqlx::raw_sql("commit").execute(&mut self.connection).await?;
            let _ = self.connection.close().await;
            Ok(())
        })
        .await
    }
}

/// A size as stored in the database.
pub(super) fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
