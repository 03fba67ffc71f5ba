//! The bytes that are in the artifact store: claimed by whoever brings them, held by whoever removes them.

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};

use super::{Error, artifacts::Artifacts, bounded};
use crate::domain::{artifact::Hash, limits::READ_WAIT_MS_MAX};

/// A content that nobody else can claim while this lives.
#[derive(Debug)]
pub struct LockedContent {
    connection: PgConnection,
}

impl Artifacts<'_> {
    /// Says that these bytes are about to get their names; from now on nobody removes them for a while.
    ///
    /// Waits for whoever is removing one of them at this moment.
    pub async fn claim_content(self, content: &[(Hash, u64)], now: DateTime<Utc>) -> Result<(), Error> {
        let mut content = content.to_vec();
        content.sort_unstable();
        content.dedup();
        let hashes: Vec<Vec<u8>> = content.iter().map(|(hash, _)| hash.as_bytes().to_vec()).collect();
        let sizes: Vec<i64> = content.iter().map(|(_, size)| signed(*size)).collect();
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

    /// Takes note of bytes that are in the store and that the database does not know; says how many there were.
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

    /// Contents that perhaps no artifact has any more, since before then, oldest first.
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

    /// Takes hold of a content to remove its bytes; `None` when an artifact has it, somebody has just claimed it, or
    /// another process is at it.
    ///
    /// A connection of its own, because it is held while the bytes go.
    pub async fn seize_content(self, hash: Hash, before: DateTime<Utc>) -> Result<Option<LockedContent>, Error> {
        let mut connection = self.dedicated("runreel_writer").await?;
        bounded(READ_WAIT_MS_MAX, async {
            // By hand, because the transaction outlives this function; a connection that is dropped rolls it back.
            sqlx::raw_sql("begin").execute(&mut connection).await?;
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
            // A statement of its own: it sees every artifact that was inserted before the row was held, and none can be
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
    /// Says that the bytes are gone. Dropped without it, nothing has happened to the content as far as the database
    /// knows: it is looked for again.
    pub async fn gone(mut self) -> Result<(), Error> {
        bounded(READ_WAIT_MS_MAX, async {
            sqlx::raw_sql("commit").execute(&mut self.connection).await?;
            let _ = self.connection.close().await;
            Ok(())
        })
        .await
    }
}

/// A size as the database keeps it.
pub(super) fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
