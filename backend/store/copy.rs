//! Copies a whole database to an empty one, for a cluster of another major version of Postgres.

use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, postgres::PgConnectOptions};

use super::{Error, access::Access, migrate};

/// A table of the schema `store`, its name quoted by Postgres.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    /// Size on disk, including indexes.
    pub bytes: u64,
}

/// Two databases with the same schema: one that is read, as of when this was created, and an empty one.
#[derive(Debug)]
pub struct Copying {
    from: PgConnection,
    to: PgConnection,
}

impl Copying {
    /// Migrates both schemas. Both sessions are a superuser's, of embedded clusters.
    pub async fn begin(from: &PgConnectOptions, to: &PgConnectOptions) -> Result<Self, Error> {
        let (mut from, mut to) = (open(from).await?, open(to).await?);
        sqlx::query!("begin isolation level repeatable read, read only").execute(&mut from).await?;
        // Rows arrive in any order, so triggers and foreign keys are not checked: they held in the source.
        sqlx::query!("set session_replication_role = replica").execute(&mut to).await?;
        let months = sqlx::query_scalar!(
            r#"select right(c.relname, 7) as "month!" from pg_inherits i join pg_class c on c.oid = i.inhrelid
               where i.inhparent = 'store.run_event'::regclass order by 1"#
        )
        .fetch_all(&mut from)
        .await?;
        for month in months {
            // With -1 it creates only the month before the given time.
            sqlx::query_scalar!(
                "select store.ensure_partitions(to_timestamp($1, 'YYYY_MM') + interval '1 month 1 day', -1)",
                month
            )
            .fetch_one(&mut to)
            .await?;
        }
        Ok(Self { from, to })
    }

    pub async fn tables(&mut self) -> Result<Vec<Table>, Error> {
        let rows = sqlx::query!(
            r#"select format('%I.%I', n.nspname, c.relname) as "name!",
                      (select coalesce(sum(pg_total_relation_size(t.relid)), 0)::bigint from pg_partition_tree(c.oid) t
                       where t.isleaf) + case c.relkind when 'r' then pg_total_relation_size(c.oid) else 0 end as "bytes!"
               from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where n.nspname = 'store' and c.relkind in ('r', 'p') and not c.relispartition order by c.oid"#
        )
        .fetch_all(&mut self.from)
        .await?;
        Ok(rows.into_iter().map(|row| Table { name: row.name, bytes: row.bytes.unsigned_abs() }).collect())
    }

    /// Copies one table and returns its number of rows; `passed` receives the bytes of each chunk.
    pub async fn copy(&mut self, table: &Table, mut passed: impl FnMut(u64)) -> Result<u64, Error> {
        let name = &table.name;
        // Rows inserted by migrations are replaced by those of the source. The log is empty, and stays append-only.
        if count(&mut self.to, name).await? > 0 {
            sqlx::raw_sql(AssertSqlSafe(format!("delete from {name}"))).execute(&mut self.to).await?;
        }
        let rows = count(&mut self.from, name).await?;
        let mut bytes =
            self.from.copy_out_raw(&format!("copy (select * from {name}) to stdout (format binary)")).await?;
        let mut into = self.to.copy_in_raw(&format!("copy {name} from stdin (format binary)")).await?;
        while let Some(chunk) = bytes.try_next().await? {
            passed(chunk.len() as u64);
            into.send(chunk).await?;
        }
        let arrived = into.finish().await?;
        if arrived == rows {
            return Ok(rows);
        }
        Err(Error::Incompatible(format!("of {rows} rows of {name}, {arrived} arrived")))
    }

    /// Continues the sequences of the source, and records the new database as where the log is written from now on,
    /// unless the source was itself a copy, which the next start must detect.
    pub async fn finish(mut self) -> Result<(), Error> {
        let sequences = sqlx::query!(
            r#"select format('%I.%I', schemaname, sequencename) as "name!", last_value as "last_value!"
               from pg_sequences where schemaname = 'store' and last_value is not null"#
        )
        .fetch_all(&mut self.from)
        .await?;
        for sequence in sequences {
            sqlx::query_scalar!("select setval($1::text::regclass, $2)", sequence.name, sequence.last_value)
                .fetch_one(&mut self.to)
                .await?;
        }
        let is_elsewhere = sqlx::query_scalar!(r#"select store.is_elsewhere() as "flag!""#).fetch_one(&mut self.from);
        if !is_elsewhere.await? {
            sqlx::query!("update store.origin set origin = store.log_origin()").execute(&mut self.to).await?;
        }
        sqlx::query!("analyze").execute(&mut self.to).await?;
        sqlx::query!("checkpoint").execute(&mut self.to).await?;
        self.from.close().await?;
        self.to.close().await?;
        Ok(())
    }
}

async fn open(options: &PgConnectOptions) -> Result<PgConnection, Error> {
    let mut connection = Access::new(options).open().await?;
    migrate(&mut connection).await?;
    Ok(connection)
}

/// Counts a table's rows; Postgres has quoted `name`.
async fn count(connection: &mut PgConnection, name: &str) -> Result<u64, Error> {
    let counted: i64 =
        sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from {name}"))).fetch_one(connection).await?;
    Ok(counted.unsigned_abs())
}
