//! Why a query failed, and what to do about it.

use std::error::Error as _;

use crate::{
    cli::exit::{CliError, FAILED, UNREACHABLE},
    store,
};

/// For a database whose schema this program does not know.
const ONCE: &str = "start the server of this version on it once to update the schema";
/// For a login that may not become a reader, or create one.
const GRANTS: &str = "docs/operations.md, under “A Postgres of yours”, lists the grants it needs";

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default().into_owned()
}

/// No session was established.
pub(super) fn unreachable(error: &sqlx::Error) -> CliError {
    let why = error.as_database_error().map(|error| format!(": {}", error.message())).unwrap_or_default();
    let hint = match code(error).as_str() {
        "42501" => GRANTS,
        "22023" | "28000" if why.contains("runreel_") => ONCE,
        _ => "runreel doctor",
    };
    let what = format!("cannot reach the database{why}");
    CliError { code: UNREACHABLE, what, hint: Some(hint.to_owned()) }
}

/// A session was established, and the query failed.
pub(super) fn unanswered(error: &sqlx::Error) -> CliError {
    let Some(database) = error.as_database_error() else { return unreachable(error) };
    let code = code(error);
    let hint = match code.as_str() {
        "42501" | "25006" => Some("this command is read-only; the views are described in docs/sql.md"),
        "42P01" | "42703" => Some("the views and their columns are described in docs/sql.md"),
        "57014" => Some("increase --timeout, or query less data"),
        "42601" if database.message().contains("multiple commands") => Some("run one statement at a time"),
        _ => None,
    };
    // The hint of Postgres itself comes first.
    let hints: Vec<&str> =
        store::query::hint(database).into_iter().chain(hint).map(|hint| hint.trim_end_matches('.')).collect();
    // 57P: Postgres is shutting down.
    let exit = if code.starts_with("57P") { UNREACHABLE } else { FAILED };
    CliError { code: exit, what: database.message().to_owned(), hint: (!hints.is_empty()).then(|| hints.join("; ")) }
}

/// There is no role for `--sub`.
pub(super) fn unscoped(error: store::Error) -> anyhow::Error {
    let Some(cause) = error.source().and_then(|cause| cause.downcast_ref::<sqlx::Error>()) else {
        return error.into();
    };
    let complaint = |what: &str, hint: &str| CliError::failed(what).with_hint(hint).into();
    match code(cause).as_str() {
        "3F000" | "42883" | "42P01" => {
            complaint("this database has another version, and --sub does not change it", ONCE)
        }
        "42501" => complaint("this login may not create the role that --sub uses", GRANTS),
        "" => unreachable(cause).into(),
        code if ["08", "28", "3D", "53", "57P"].iter().any(|class| code.starts_with(class)) => {
            unreachable(cause).into()
        }
        _ => error.into(),
    }
}
