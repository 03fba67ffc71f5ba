//! Postgres's side of a base backup: files copied between its start and its stop are consistent once the WAL of that
//! time has been replayed.

use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};

use super::{Error, access::Access};

/// A backup in progress. Until this is dropped, Postgres keeps the WAL, and the session must stay open.
#[derive(Debug)]
pub struct BaseBackup {
    connection: PgConnection,
    first_segment: String,
}

/// What a restore needs besides the files.
#[derive(Debug)]
pub struct Consistency {
    /// The content of the file `backup_label`.
    pub label: String,
    /// The names of the first and the last WAL file.
    pub segments: (String, String),
}

impl BaseBackup {
    /// `options` are the superuser's. Waits for a checkpoint.
    pub async fn begin(options: &PgConnectOptions) -> Result<Self, Error> {
        let mut connection = Access::new(options).open().await?;
        sqlx::query!(
            r#"select slot_name::text as "name!"
               from pg_create_physical_replication_slot('runreel_backup_' || pg_backend_pid(), true, true)"#
        )
        .fetch_one(&mut connection)
        .await?;
        let first_segment =
            sqlx::query_scalar!(r#"select pg_walfile_name(pg_backup_start('runreel', true)) as "name!""#)
                .fetch_one(&mut connection)
                .await?;
        Ok(Self { connection, first_segment })
    }

    /// Ends the time in which files may be copied. The WAL is kept until [`Self::close`].
    pub async fn stop(&mut self) -> Result<Consistency, Error> {
        let stop =
            sqlx::query!(r#"select labelfile as "label!", pg_walfile_name(lsn) as "last!" from pg_backup_stop(false)"#)
                .fetch_one(&mut self.connection)
                .await?;
        Ok(Consistency { label: stop.label, segments: (self.first_segment.clone(), stop.last) })
    }

    /// Whether there are any artifacts.
    pub async fn has_artifacts(&mut self) -> Result<bool, Error> {
        let some = sqlx::query_scalar!(r#"select exists (select from store.artifact) as "some!""#);
        Ok(some.fetch_one(&mut self.connection).await?)
    }

    pub async fn close(self) -> Result<(), Error> {
        Ok(self.connection.close().await?)
    }
}
