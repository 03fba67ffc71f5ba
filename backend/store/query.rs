//! A person's own query, as a role that can only read the people's views.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, Column as _, Connection as _, Executor as _, PgConnection, Row as _, SqlSafeStr as _, ValueRef as _,
    postgres::PgConnectOptions,
};

/// The columns of an answer and its rows, as text; `None` is SQL's null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
}

/// Lets the reading role log in, on a cluster that only this machine's user can reach: its sessions then have no other
/// role to fall back to.
pub async fn let_reader_log_in(options: &PgConnectOptions) -> Result<(), sqlx::Error> {
    let mut owner = PgConnection::connect_with(options).await?;
    sqlx::raw_sql("alter role runreel_reader login").execute(&mut owner).await?;
    owner.close().await
}

/// How a statement that only asks may begin.
const QUESTIONS: [&str; 7] = ["select", "with", "values", "table", "explain", "show", "("];

/// Runs one statement in a read-only transaction of the role `runreel_reader`.
///
/// The text is the person's own and is meant to be SQL. What keeps it harmless is the role, which may select from the
/// views of the schema `runreel` and nothing else, and the transaction, which cannot become a writing one. On the
/// embedded database the session belongs to that role; on one of the operator's it begins as the role its URL names,
/// so there a determined author can get back to what that URL allows: who has the URL has that anyway.
pub async fn run(options: &PgConnectOptions, text: String, timeout: Duration) -> Result<Table, sqlx::Error> {
    let first = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    if !QUESTIONS.iter().any(|word| first.starts_with(word)) {
        let rule = format!("a question begins with one of: {}", QUESTIONS.join(", "));
        return Err(sqlx::Error::InvalidArgument(rule));
    }
    let options = options.clone().options(reader(timeout));
    let mut connection = PgConnection::connect_with(&options).await?;
    let mut tx = connection.begin_with("begin read only").await?;
    let text = AssertSqlSafe(text).into_sql_str();
    // Preparing refuses more than one statement, so nothing can leave the transaction and go on.
    let prepared = tx.prepare(text.clone()).await?;
    let mut table = Table {
        columns: sqlx::Statement::columns(&prepared).iter().map(|column| column.name().to_owned()).collect(),
        rows: Vec::new(),
    };
    // The simple protocol gives every type as the text psql would show.
    for row in sqlx::raw_sql(text).fetch_all(&mut *tx).await? {
        let cell = |index| {
            let value = row.try_get_raw(index)?;
            if value.is_null() {
                return Ok(None);
            }
            Ok(value.as_str().map(|text| Some(text.to_owned())).unwrap_or_default())
        };
        table.rows.push((0..row.len()).map(cell).collect::<Result<_, sqlx::Error>>()?);
    }
    tx.rollback().await?;
    connection.close().await?;
    Ok(table)
}

/// The settings that make a session a reader's, for a connection of ours or for psql.
pub fn reader(timeout: Duration) -> [(&'static str, String); 4] {
    [
        ("role", "runreel_reader".to_owned()),
        ("search_path", "runreel".to_owned()),
        ("default_transaction_read_only", "on".to_owned()),
        ("statement_timeout", timeout.as_millis().to_string()),
    ]
}
