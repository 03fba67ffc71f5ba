//! A user's own query, as a role that can only read the public views.

use std::{io, time::Duration};

use futures::StreamExt as _;
use sqlx::{
    AssertSqlSafe, Column as _, Connection as _, Executor as _, Row as _, SqlSafeStr as _, TypeInfo as _,
    ValueRef as _,
    error::DatabaseError,
    postgres::{PgConnectOptions, PgDatabaseError, PgRow},
};

use super::{Error, Store, access::Access};
use crate::domain::principal::OwnerId;

/// The role that can read all owners' data.
pub const READER: &str = "runreel_reader";
/// The role of [`super::queries`], which sees one owner's data, or nothing.
pub const SCOPED: &str = "runreel_scoped";

/// How a query is run: how to connect, as which role, and how long it may take.
#[derive(Clone, Debug)]
pub struct Reader {
    pub options: PgConnectOptions,
    pub role: String,
    pub timeout: Duration,
}

/// A result column; `kind` is its type in capitals, such as `INT8` or `TEXT[]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: String,
}

/// Receives a result row by row, so that it need not be held in memory.
pub trait RowSink {
    /// Called once, before the first row; never if the query fails before that.
    fn columns(&mut self, columns: &[Column]) -> io::Result<()>;
    /// The values as psql would show them; `None` is SQL's null.
    fn row(&mut self, cells: &[Option<&str>]) -> io::Result<()>;
}

/// Why there is no result, or only a part of it.
#[derive(Debug)]
pub enum Failed {
    /// The text is not an allowed query.
    Rule(String),
    /// The session as this reader could not be established.
    Connection(sqlx::Error),
    Database(sqlx::Error),
    RowSink(io::Error),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// A result's columns and rows, as text; `None` is SQL's null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
}

impl RowSink for Table {
    fn columns(&mut self, columns: &[Column]) -> io::Result<()> {
        self.columns = columns.iter().map(|column| column.name.clone()).collect();
        Ok(())
    }

    fn row(&mut self, cells: &[Option<&str>]) -> io::Result<()> {
        self.rows.push(cells.iter().map(|cell| cell.map(str::to_owned)).collect());
        Ok(())
    }
}

/// Lets the reading roles log in on the embedded cluster, with the password of the role that executes this: their
/// sessions then have no other role to fall back to. The verifier is copied, so no statement contains the password. The
/// role of queries over HTTP gets a limit on temporary files, which only a superuser can set, and one on its sessions,
/// which also counts those that outlive their server.
const LET_READERS_LOG_IN: &str = "do $$
declare
    reader name;
    verifier text := (select rolpassword from pg_authid where rolname = current_user);
begin
    for reader in
        select rolname from pg_authid
        where rolname in ('runreel_reader', 'runreel_scoped', current_setting('runreel.reader', true))
          and not (rolcanlogin and rolpassword is not distinct from verifier)
    loop
        execute format('alter role %I login password %L', reader, verifier);
    end loop;
    if exists (select from pg_roles where rolname = 'runreel_scoped')
       and not exists (select from pg_db_role_setting s join pg_roles r on r.oid = s.setrole
                       where r.rolname = 'runreel_scoped' and 'temp_file_limit=1GB' = any (s.setconfig)) then
        alter role runreel_scoped set temp_file_limit = '1GB';
    end if;
    if exists (select from pg_roles where rolname = 'runreel_scoped' and rolconnlimit <> 8) then
        alter role runreel_scoped connection limit 8;
    end if;
end
$$";

impl Store {
    /// Lets the reading roles log in on the embedded cluster.
    pub async fn enable_reader_login(&self) -> Result<(), Error> {
        sqlx::raw_sql(LET_READERS_LOG_IN).execute(&mut *self.owner.acquire().await?).await?;
        Ok(())
    }
}

/// [`Store::enable_reader_login`] for a command.
pub async fn enable_reader_login(options: &PgConnectOptions) -> Result<(), sqlx::Error> {
    let mut owner = Access::new(options).open().await?;
    sqlx::raw_sql(LET_READERS_LOG_IN).execute(&mut owner).await?;
    owner.close().await
}

/// The name of the role that sees only this owner's rows; created if it is missing and the owner has any data. On the
/// embedded cluster it may log in, as the other reader may. Does not migrate the schema.
pub async fn scoped_reader(options: &PgConnectOptions, owner: &OwnerId, may_log_in: bool) -> Result<String, Error> {
    let mut connection = Access::new(options).open().await?;
    let role =
        sqlx::query_scalar!(r#"select store.scoped_reader($1, $2)::text as "role!""#, owner.as_str(), may_log_in)
            .fetch_one(&mut connection)
            .await?;
    if may_log_in {
        sqlx::query("select set_config('runreel.reader', $1, false)").bind(&role).execute(&mut connection).await?;
        sqlx::raw_sql(LET_READERS_LOG_IN).execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(role)
}

/// How a read-only statement may begin.
const QUESTIONS: [&str; 7] = ["select", "with", "values", "table", "explain", "show", "("];

/// The whole result of a query over all owners, as text.
pub async fn run(options: &PgConnectOptions, text: String, timeout: Duration) -> Result<Table, sqlx::Error> {
    let reader = Reader { options: options.clone(), role: READER.to_owned(), timeout };
    let mut table = Table::default();
    match ask(&reader, text, &mut table).await {
        Ok(_) => Ok(table),
        Err(Failed::Connection(error) | Failed::Database(error)) => Err(error),
        Err(Failed::Rule(rule)) => Err(sqlx::Error::InvalidArgument(rule)),
        Err(Failed::RowSink(error)) => Err(sqlx::Error::Io(error)),
    }
}

/// Rejects a database behind a pooler that lends connections for less than a session.
pub async fn check_sessions(options: &PgConnectOptions) -> Result<(), Error> {
    Ok(Access::new(options).open_checked().await?.close().await?)
}

/// Runs one statement in a read-only transaction of the reader's role, and returns how many rows it yielded.
///
/// The text is the user's own and is meant to be SQL. It is harmless because of the role, which may only select from
/// the views of the schema `runreel`, and the transaction, which cannot become a writing one. On the embedded database
/// the session belongs to that role; on the operator's it begins as the role in its URL, so a determined author can get
/// back to what that URL allows: anyone who has the URL has that anyway.
pub async fn ask(reader: &Reader, text: String, taker: &mut impl RowSink) -> Result<u64, Failed> {
    let text = text.trim_start_matches('\u{feff}').to_owned();
    let first = after_comments(&text).to_ascii_lowercase();
    if !QUESTIONS.iter().any(|word| first.starts_with(word)) {
        return Err(Failed::Rule(format!("a query must begin with one of: {}", QUESTIONS.join(", "))));
    }
    let access = Access::new(&reader.options).with(reader.settings());
    let mut connection = access.open().await.map_err(Failed::Connection)?;
    let mut tx = connection.begin_with("begin read only").await?;
    let text = AssertSqlSafe(text).into_sql_str();
    // Preparing rejects more than one statement, so none can leave the transaction and continue.
    let prepared = tx.prepare(text.clone()).await?;
    let columns = sqlx::Statement::columns(&prepared).iter();
    let columns: Vec<Column> = columns
        .map(|column| Column { name: column.name().to_owned(), kind: column.type_info().name().to_owned() })
        .collect();
    let mut count = 0;
    // The simple protocol returns every type as the text psql would show.
    let mut rows = sqlx::raw_sql(text).fetch(&mut *tx);
    while let Some(row) = rows.next().await {
        let row = row?;
        if count == 0 {
            taker.columns(&columns).map_err(Failed::RowSink)?;
        }
        let cells = (0..row.len()).map(|index| cell(&row, index)).collect::<Result<Vec<_>, _>>()?;
        taker.row(&cells).map_err(Failed::RowSink)?;
        count += 1;
    }
    drop(rows);
    if count == 0 {
        taker.columns(&columns).map_err(Failed::RowSink)?;
    }
    tx.rollback().await?;
    connection.close().await?;
    Ok(count)
}

/// A text without its leading comments. Those in `/*` may be nested.
fn after_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        if rest.starts_with("--") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after).trim_start();
            continue;
        }
        let Some(mut inside) = rest.strip_prefix("/*") else { return rest };
        let mut depth = 1;
        while depth > 0 {
            let Some(at) = inside.find(['/', '*']) else { return "" };
            let (mark, length) = match inside.get(at..at + 2) {
                Some("/*") => (1, 2),
                Some("*/") => (-1, 2),
                _ => (0, 1),
            };
            depth += mark;
            inside = &inside[at + length..];
        }
        rest = inside.trim_start();
    }
}

/// Postgres's hint about an error.
pub fn hint(error: &dyn DatabaseError) -> Option<&str> {
    error.try_downcast_ref::<PgDatabaseError>().and_then(PgDatabaseError::hint)
}

fn cell(row: &PgRow, index: usize) -> Result<Option<&str>, sqlx::Error> {
    let value = row.try_get_raw(index)?;
    if value.is_null() {
        return Ok(None);
    }
    value.as_str().map(Some).map_err(sqlx::Error::Decode)
}

impl Reader {
    /// Whether psql, which passes the settings as startup parameters, gets this reader's role.
    pub async fn suits_psql(&self) -> Result<bool, sqlx::Error> {
        Access::new(&self.options).with(self.settings()).starts_as(&self.role).await
    }

    /// The settings that make a session a reader's, for our connection or for psql.
    ///
    /// Sorts get more memory than suits a server with many small statements. For one person's query, spending seconds
    /// on compiling its expressions is not worth it.
    pub fn settings(&self) -> [(&'static str, String); 6] {
        [
            ("role", self.role.clone()),
            ("search_path", "runreel".to_owned()),
            ("default_transaction_read_only", "on".to_owned()),
            ("statement_timeout", self.timeout.as_millis().to_string()),
            ("work_mem", "64MB".to_owned()),
            ("jit", "off".to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_may_begin_with_comments() {
        for (text, expected) in [
            ("select 1", "select 1"),
            ("  \n-- why\n --\nselect 1", "select 1"),
            ("/* why */ select 1", "select 1"),
            ("/* a /* b */ -- c\n */-- d\n/**/(select 1)", "(select 1)"),
            ("/***/ é", "é"),
            ("-- nothing", ""),
            ("/* a /* b */", ""),
        ] {
            assert_eq!(after_comments(text), expected, "{text}");
        }
    }
}
