//! Queries of principals: each sees its own rows, as a role that can do nothing else.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, Column as _, Connection as _, Executor as _, SqlSafeStr as _, TypeInfo as _,
    postgres::{PgConnectOptions, PgDatabaseError, PgErrorPosition},
};

use super::{
    Error, Store,
    access::Access,
    bounded,
    query::{Column, Reader, SCOPED},
    replica::Readers,
};
use crate::{
    domain::{
        limits::{QUERIES_MAX, QUERIES_OWN_MAX, QUERY_WAIT_MS_MAX, READ_WAIT_MS_MAX},
        principal::OwnerId,
        query::Query,
    },
    quota::Quota,
    throttle::Resource,
};

/// How long beyond its own time a query may take to be answered, milliseconds.
const GRACE_MS: u64 = 2_000;

/// Runs queries, a few at a time.
#[derive(Clone, Debug)]
pub struct Queries {
    store: Store,
    /// How to connect to the primary as the role that sees nothing by itself.
    options: PgConnectOptions,
    readers: Readers,
    /// Queries in progress.
    pub turns: Quota,
}

/// How much of a result is wanted, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub rows_max: i64,
    pub bytes_max: i64,
    pub timeout: Duration,
}

/// A result, or its beginning.
#[derive(Debug)]
pub struct Answer {
    pub columns: Vec<Column>,
    /// The values as text; `None` is SQL's null.
    pub rows: Vec<Vec<Option<String>>>,
    pub is_truncated: bool,
}

/// Why there is no result.
#[derive(Debug)]
pub enum Unanswered {
    /// Too many queries are in progress, of this principal or of all.
    Busy,
    TooSlow,
    Rejected(Rejection),
    Store(Error),
}

/// What Postgres says of a query.
#[derive(Debug)]
pub struct Rejection {
    pub message: String,
    pub sqlstate: String,
    /// The character of the query, from 1.
    pub position: Option<usize>,
    pub hint: Option<String>,
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Queries {
    pub fn new(store: Store, options: PgConnectOptions, readers: Readers) -> Self {
        Self { store, options, readers, turns: Quota::new(QUERIES_MAX, QUERIES_OWN_MAX) }
    }

    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Runs a query over what belongs to `owner`.
    pub async fn ask(&self, owner: &OwnerId, query: &Query, bounds: Bounds) -> Result<Answer, Unanswered> {
        let wait = Duration::from_millis(QUERY_WAIT_MS_MAX);
        let turn = tokio::time::timeout(wait, self.turns.take(owner, 1)).await.ok().and_then(Result::ok);
        let _turn = turn.ok_or(Unanswered::Busy)?;
        let scope = self.scope(owner).await?;
        let mut usage = self.store.throttle().turn(owner, Resource::Reading).await;
        usage.begin();
        let patience = bounds.timeout + Duration::from_millis(GRACE_MS);
        tokio::time::timeout(patience, self.answer(scope, query, bounds)).await.unwrap_or(Err(Unanswered::TooSlow))
    }

    /// The setting that makes a session see one owner's rows.
    async fn scope(&self, owner: &OwnerId) -> Result<String, Error> {
        self.store
            .scoped(owner, async |mut connection| {
                let scope = sqlx::query_scalar!(
                    r#"select $1::text || ':' || store.scope_proof($1) as "scope!""#,
                    owner.as_str()
                );
                Ok(scope.fetch_one(&mut *connection).await?)
            })
            .await
    }

    /// From the replica if it can answer, else from the primary.
    async fn answer(&self, scope: String, query: &Query, bounds: Bounds) -> Result<Answer, Unanswered> {
        if let Some(replica) = self.readers.of_query().await {
            match answer_of(replica, &scope, query, bounds).await {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::TooSlow) => return Err(Unanswered::TooSlow),
                Err(Unanswered::Store(error)) => self.readers.give_up(&error),
                // A standby has reasons of its own; if it is the query's fault, the primary says so too.
                Err(Unanswered::Rejected(_) | Unanswered::Busy) => {}
            }
        }
        answer_of(&self.options, &scope, query, bounds).await
    }
}

async fn answer_of(
    options: &PgConnectOptions,
    scope: &str,
    query: &Query,
    bounds: Bounds,
) -> Result<Answer, Unanswered> {
    let reader = Reader { options: options.clone(), role: SCOPED.to_owned(), timeout: bounds.timeout };
    let access = Access::new(&reader.options).with(reader.settings()).with([
        ("runreel.scope", scope),
        ("application_name", "runreel-query"),
        ("standard_conforming_strings", "on"),
        ("timezone", "UTC"),
        ("datestyle", "ISO"),
        ("work_mem", "32MB"),
        ("tcp_user_timeout", "4000"),
    ]);
    let mut connection = bounded(READ_WAIT_MS_MAX, async { Ok(access.open().await?) }).await?;
    let mut tx = connection.begin_with("begin read only").await.map_err(Error::from)?;
    // By itself first: that says what is wrong where, and how many columns there are.
    let statement = tx.prepare(AssertSqlSafe(query.as_str().to_owned()).into_sql_str()).await.map_err(rejected)?;
    let columns = sqlx::Statement::columns(&statement)
        .iter()
        .map(|column| Column { name: column.name().to_owned(), kind: column.type_info().name().to_owned() });
    let columns: Vec<Column> = columns.collect();
    if columns.is_empty() {
        let message = "a query must have at least one column".to_owned();
        return Err(Unanswered::Rejected(Rejection {
            message,
            sqlstate: "42601".to_owned(),
            position: None,
            hint: None,
        }));
    }
    let rows = sqlx::query_scalar!(
        r#"select answer as "cells: Vec<Option<String>>" from runreel.answer($1, $2, $3, $4)"#,
        query.as_str(),
        i32::try_from(columns.len()).unwrap_or(i32::MAX),
        bounds.rows_max,
        bounds.bytes_max
    );
    let rows = rows.fetch_all(&mut *tx).await.map_err(rejected)?;
    let is_truncated = rows.last().is_some_and(Option::is_none);
    // Nothing is kept, neither of the transaction nor of the session.
    drop(tx);
    let _ = connection.close().await;
    Ok(Answer { columns, rows: rows.into_iter().flatten().collect(), is_truncated })
}

/// An error that Postgres has of the query itself, without what is none of its author's business.
fn rejected(error: sqlx::Error) -> Unanswered {
    let Some(database) = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) else {
        return Error::from(error).into();
    };
    let code = database.code();
    let class = code.get(..2).unwrap_or_default();
    if code == "57014" {
        return Unanswered::TooSlow;
    }
    // Lost, shut down, or without room for anybody. A query that needs too much room of its own is its author's.
    if matches!(class, "08" | "57" | "58" | "XX") || class == "53" && !matches!(code, "53200" | "53400") {
        return Error::from(error).into();
    }
    let message = match code {
        "42501" => "the query may only read the views of the schema runreel".to_owned(),
        _ => database.message().to_owned(),
    };
    let position = match database.position() {
        Some(PgErrorPosition::Original(position)) => Some(position),
        _ => None,
    };
    Unanswered::Rejected(Rejection {
        message,
        sqlstate: code.to_owned(),
        position,
        hint: database.hint().map(str::to_owned),
    })
}
