//! Queries of principals, each in a role that can only read the principal's own rows.
//!
//! Invariant: a query keeps its place until its backend has answered or is gone, even if its client disconnects.
//! Postgres does not notice a cancellation everywhere, so the places bound how many backends execute queries.

mod turns;

use std::{sync::Arc, time::Duration};

use sqlx::{
    AssertSqlSafe, Column as _, Connection as _, Executor as _, PgConnection, SqlSafeStr as _, TypeInfo as _,
    postgres::{PgConnectOptions, PgDatabaseError, PgErrorPosition},
};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use self::turns::Turns;
use super::{
    Error, Store,
    access::Access,
    bounded,
    query::{Column, Reader, SCOPED},
    replica::Readers,
};
use crate::{
    domain::{limits::READ_WAIT_MS_MAX, principal::OwnerId, query::Query},
    quota::Share,
    supervise::Supervisor,
    throttle::Resource,
};

/// Time on top of a query's own timeout within which it must be answered, milliseconds.
const GRACE_MS: u64 = 2_000;
/// The first and the longest pause between two attempts to end a backend.
const END_EVERY: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// Runs queries, a few at a time.
#[derive(Clone, Debug)]
pub struct Queries {
    store: Store,
    /// How to connect to the primary in a role that sees nothing without a scope.
    options: PgConnectOptions,
    readers: Readers,
    /// The places of queries in progress.
    pub turns: Turns,
    supervisor: Supervisor,
}

/// A session's scope, and the name by which it is found again.
#[derive(Debug)]
struct Scope {
    /// Lets it see one owner's rows.
    scope: String,
    /// The session's unique name.
    name: String,
}

/// The backend of a query.
#[derive(Debug)]
struct Backend<'a> {
    store: &'a Store,
    name: &'a str,
    place: &'a Arc<Share>,
    supervisor: &'a Supervisor,
    /// Whether only its end is left.
    has_answered: bool,
}

impl Drop for Backend<'_> {
    /// Ends it unless it has answered, and keeps its place until then.
    fn drop(&mut self) {
        if self.has_answered {
            return;
        }
        // Without a runtime, the process is ending.
        let Ok(runtime) = Handle::try_current() else { return };
        let (store, name, place) = (self.store.clone(), self.name.to_owned(), Arc::clone(self.place));
        let stop = self.supervisor.stop().clone();
        let ended = async move {
            let [mut pause, longest] = END_EVERY;
            while !store.end_query(&name).await.unwrap_or(false) {
                sleep(pause).await;
                pause = longest.min(2 * pause);
            }
            drop(place);
        };
        self.supervisor.tasks().spawn_on(async move { Box::pin(stop.run_until_cancelled(ended)).await }, &runtime);
    }
}

/// Bounds of a result's size and of its time.
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
    /// It was ended in favour of a waiting query.
    GaveWay,
    TooSlow,
    Rejected(Rejection),
    Store(Error),
}

/// Postgres's error about a query.
#[derive(Debug)]
pub struct Rejection {
    pub message: String,
    pub sqlstate: String,
    /// The position in the query, in characters from 1.
    pub position: Option<usize>,
    pub hint: Option<String>,
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Queries {
    pub fn new(store: Store, options: PgConnectOptions, readers: Readers, supervisor: Supervisor) -> Self {
        Self { store, options, readers, turns: Turns::default(), supervisor }
    }

    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Runs a query over the rows of `owner`.
    pub async fn ask(&self, owner: &OwnerId, query: &Query, bounds: Bounds) -> Result<Answer, Unanswered> {
        let place = Arc::new(self.turns.take(owner).await.ok_or(Unanswered::Busy)?);
        let scope = self.scope(owner).await?;
        let mut usage = self.store.throttle().turn(owner, Resource::Reading).await;
        usage.begin();
        let patience = bounds.timeout + Duration::from_millis(GRACE_MS);
        tokio::select! {
            biased;
            answer = timeout(patience, self.answer(&scope, &place, query, bounds)) => {
                answer.unwrap_or(Err(Unanswered::TooSlow))
            }
            () = self.turns.is_wanted() => Err(Unanswered::GaveWay),
        }
    }

    async fn scope(&self, owner: &OwnerId) -> Result<Scope, Error> {
        self.store
            .scoped(owner, async |mut connection| {
                let scope = sqlx::query_as!(
                    Scope,
                    r#"select $1::text || ':' || store.scope_proof($1) as "scope!",
                              'runreel-query ' || gen_random_uuid() as "name!""#,
                    owner.as_str()
                );
                Ok(scope.fetch_one(&mut *connection).await?)
            })
            .await
    }

    /// From the replica if it can answer, else from the primary.
    async fn answer(
        &self,
        scope: &Scope,
        place: &Arc<Share>,
        query: &Query,
        bounds: Bounds,
    ) -> Result<Answer, Unanswered> {
        let backend =
            |store| Backend { store, name: &scope.name, place, supervisor: &self.supervisor, has_answered: false };
        if let Some((options, replica)) = self.readers.of_query().await {
            match answer_of(backend(replica), options, scope, query, bounds).await {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::TooSlow) => return Err(Unanswered::TooSlow),
                Err(Unanswered::Store(error)) => self.readers.give_up(&error),
                // A standby may reject for its own reasons; if the query is at fault, the primary rejects it too.
                Err(Unanswered::Rejected(_) | Unanswered::Busy | Unanswered::GaveWay) => {}
            }
        }
        answer_of(backend(&self.store), &self.options, scope, query, bounds).await
    }
}

impl Store {
    /// Ends the session of a query; returns whether it is gone.
    async fn end_query(&self, name: &str) -> Result<bool, Error> {
        self.maintenance(async |mut connection| {
            let is_gone = sqlx::query_scalar!(r#"select store.end_query($1) as "is_gone!""#, name);
            Ok(is_gone.fetch_one(&mut *connection).await?)
        })
        .await
    }
}

async fn answer_of(
    mut backend: Backend<'_>,
    options: &PgConnectOptions,
    scope: &Scope,
    query: &Query,
    bounds: Bounds,
) -> Result<Answer, Unanswered> {
    let answer = asked(options, scope, query, bounds).await;
    backend.has_answered = !matches!(answer, Err(Unanswered::Store(_)));
    answer
}

async fn asked(
    options: &PgConnectOptions,
    Scope { scope, name }: &Scope,
    query: &Query,
    bounds: Bounds,
) -> Result<Answer, Unanswered> {
    let reader = Reader { options: options.clone(), role: SCOPED.to_owned(), timeout: bounds.timeout };
    let access = Access::new(&reader.options).with(reader.settings()).with([
        ("runreel.scope", scope.as_str()),
        ("application_name", name.as_str()),
        ("standard_conforming_strings", "on"),
        ("timezone", "UTC"),
        ("datestyle", "ISO"),
        ("work_mem", "32MB"),
        // A query is one process, with the memory of one.
        ("max_parallel_workers_per_gather", "0"),
        ("tcp_user_timeout", "4000"),
    ]);
    let mut connection = bounded(READ_WAIT_MS_MAX, async { Ok(access.open().await?) }).await?;
    let mut tx = connection.begin_with("begin read only").await.map_err(Error::from)?;
    if let Some(function) = function_among(&mut tx, query.members()).await? {
        let message = format!("{function}, behind a dot, is a function that is not available in a query");
        let hint = Some("give a column of this name another one".to_owned());
        return Err(Unanswered::Rejected(Rejection { message, sqlstate: "42883".to_owned(), position: None, hint }));
    }
    // Prepared alone first, for exact error positions and the number of columns.
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
    // Rolls back the transaction and closes the session.
    drop(tx);
    let _ = connection.close().await;
    Ok(Answer { columns, rows: rows.into_iter().flatten().collect(), is_truncated })
}

/// A name that Postgres resolves to a function of one value where it finds no column. Type conversions are harmless; no
/// column of the views has the name of any other such function.
async fn function_among(connection: &mut PgConnection, names: &[String]) -> Result<Option<String>, Error> {
    if names.is_empty() {
        return Ok(None);
    }
    let function = sqlx::query_scalar!(
        r#"select p.proname::text as "name!" from pg_catalog.pg_proc p
           where p.proname = any ($1::text[]::name[]) and p.pronamespace = 'pg_catalog'::regnamespace
             and p.pronargs > 0 and p.pronargs - p.pronargdefaults <= 1
             and not exists (select from pg_catalog.pg_cast c where c.castfunc = p.oid)
             and p.proname::text not in (select t.typname from pg_catalog.pg_type t where t.oid = p.prorettype)
           limit 1"#,
        names
    );
    Ok(function.fetch_optional(connection).await?)
}

/// Converts an error; for an error in the query itself, without details that its author must not see.
fn rejected(error: sqlx::Error) -> Unanswered {
    let Some(database) = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) else {
        return Error::from(error).into();
    };
    let code = database.code();
    let class = code.get(..2).unwrap_or_default();
    if code == "57014" {
        return Unanswered::TooSlow;
    }
    // The connection is lost, or the server is shutting down or out of resources. A query that needs too much memory
    // itself is rejected.
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
