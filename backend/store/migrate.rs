//! Brings the schema of the database to this version, one process at a time.

use sqlx::{PgConnection, migrate::Migrate as _};

use super::{Error, Fate, MIGRATOR};

/// Longest wait of one attempt to take the migration lock, milliseconds.
const LOCK_MS_MAX: u64 = 1_000;

pub(super) async fn migrate(connection: &mut PgConnection) -> Result<(), Error> {
    if !is_current(connection).await {
        apply(connection).await?;
    }
    // At every start, because months also pass between starts.
    loop {
        match sqlx::query_scalar!("select store.ensure_partitions(now(), 3)").fetch_one(&mut *connection).await {
            Err(error) if is_made_meanwhile(&error) => {}
            made => return Ok(made.map(|_| ())?),
        }
    }
}

/// Whether another server created the same object at the same time.
pub(super) fn is_made_meanwhile(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    matches!(code.as_deref(), Some("42P07" | "23505"))
}

async fn apply(connection: &mut PgConnection) -> Result<(), Error> {
    take_migrations_lock(connection).await?;
    MIGRATOR.run(&mut *connection).await.map_err(|error| match error {
        sqlx::migrate::MigrateError::Execute(error) | sqlx::migrate::MigrateError::ExecuteMigration(error, _) => {
            let code =
                error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default().into_owned();
            if code == "42501" {
                Error::Incompatible(
                    "the database role may not create roles and schemas; grant it CREATEROLE and ownership of the \
                     database, or let a superuser start the server once"
                        .to_owned(),
                )
            } else {
                Error::from(error)
            }
        }
        sqlx::migrate::MigrateError::VersionMissing(_) => Error::Incompatible(
            "the database was created by a newer version of this program; run that version or give it another database"
                .to_owned(),
        ),
        other => Error::Incompatible(format!("the database schema cannot be migrated: {other}")),
    })?;
    Ok(())
}

/// Whether the schema already has this version, so that the lock is not needed.
async fn is_current(connection: &mut PgConnection) -> bool {
    // Without a list of migrations yet, this is an error.
    let applied = connection.list_applied_migrations(&MIGRATOR.table_name).await.unwrap_or_default();
    let (applied, ours) = (applied.iter().map(|at| (at.version, &at.checksum)), MIGRATOR.iter());
    applied.eq(ours.map(|at| (at.version, &at.checksum)))
}

/// Takes the lock under which one process at a time migrates; the end of the session releases it. Any login of the
/// database can hold it, so the wait is bounded.
async fn take_migrations_lock(connection: &mut PgConnection) -> Result<(), Error> {
    sqlx::query_scalar!("select set_config('lock_timeout', $1, false)", LOCK_MS_MAX.to_string())
        .fetch_one(&mut *connection)
        .await?;
    connection.lock().await.map_err(|error| match error {
        sqlx::migrate::MigrateError::Execute(error) => {
            let error = Error::from(error);
            if error.fate() == Fate::Locked {
                tracing::warn!("another session holds the lock of the schema's migrations: a server that migrates, or another login");
            }
            error
        }
        other => Error::Incompatible(format!("the database schema cannot be locked: {other}")),
    })?;
    sqlx::query_scalar!("select set_config('lock_timeout', '0', false)").fetch_one(&mut *connection).await?;
    Ok(())
}
