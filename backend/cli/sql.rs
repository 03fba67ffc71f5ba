//! `runreel sql`: queries the log.

mod error;
mod format;
mod psql;
mod signals;

use std::{
    io::{IsTerminal, Read},
    process::ExitCode,
    time::Duration,
};

use clap::{ValueEnum, builder::NonEmptyStringValueParser};

use self::{
    format::{Csv, Drawn, Form, Json},
    signals::Signals,
};
use super::{
    exit::{CliError, UNREACHABLE},
    render::say,
};
use crate::{
    config::{DataArgs, Secrets},
    database::Database,
    domain::principal::OwnerId,
    postgres::{self, STOP_MAX},
    store::{
        pepper,
        query::{self, Failed, READER, Reader},
    },
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The views runs, run_events, spans, tool_calls, node_durations, messages,
model_calls, token_usage, interrupts, sessions, threads, checkpoints and
artifacts are described in docs/sql.md, with twenty example queries. Without a
query, one is read from stdin; on a terminal, psql opens.

Examples:
  runreel sql \"select type, count(*) from run_events
    group by 1 order by 2 desc\"
  runreel sql --format csv \"select name, avg(duration_ms) from tool_calls
    where run_id >= first_run_id(now() - interval '7 days')
    group by 1\" > tools.csv
  # only what belongs to bob
  runreel sql --format json --sub bob \"select run_id, status, tags from runs\"
  # psql, where \\d+ runs explains
  runreel sql")]
pub(super) struct Args {
    /// One SELECT. It runs read-only.
    #[arg(allow_hyphen_values = true)]
    query: Option<String>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// How long the query may run, seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
    /// Show only what belongs to this subject (a JWT's `sub`; `local` without authentication), enforced by Postgres.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    sub: Option<String>,
    /// The issuer that names the subject (a JWT's `iss`).
    #[arg(long, requires = "sub")]
    iss: Option<String>,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table for people.
    Table,
    /// RFC 4180.
    Csv,
    /// One JSON array of objects; numbers, booleans, json and arrays keep their type, the rest is text.
    Json,
    /// One such object per line.
    Ndjson,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let text = match &args.query {
        Some(text) => Some(text.clone()),
        None if std::io::stdin().is_terminal() => None,
        None => {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text)?;
            Some(text)
        }
    };
    let mut signals = Signals::heed()?;
    let database = tokio::select! {
        database = open_database(&args.data) => database?,
        code = signals.end() => return Ok(code),
    };
    // Ctrl-C in psql ends one of its statements, not psql.
    let in_psql = text.is_none();
    let done = tokio::select! {
        done = answer(&args, &database, text) => done,
        code = signals.end_beside(in_psql) => Ok(code),
    };
    // In any case: a Postgres that was started for this query stops with it.
    database.detach(STOP_MAX).await?;
    done
}

/// Opens the database; a query never creates it.
async fn open_database(data: &DataArgs) -> anyhow::Result<Database> {
    if data.database_url()?.is_none() {
        let folder = data.data_dir()?;
        if !postgres::may_hold_a_cluster(&folder) {
            return Err(CliError {
                code: UNREACHABLE,
                what: format!("no database in {}", folder.display()),
                hint: Some("specify the server's data directory with --data-dir, or its DATABASE_URL".to_owned()),
            }
            .into());
        }
    }
    let unreachable = |error| CliError { code: UNREACHABLE, what: format!("{error:#}"), hint: None };
    let database = Database::attach(data).await.map_err(unreachable)?;
    if database.endpoint.is_none() {
        query::check_sessions(&database.options).await.map_err(error::unscoped)?;
    }
    Ok(database)
}

async fn answer(args: &Args, database: &Database, text: Option<String>) -> anyhow::Result<ExitCode> {
    let role = match &args.sub {
        Some(sub) => scoped(database, args.iss.as_deref().unwrap_or_default(), sub).await?,
        None => READER.to_owned(),
    };
    if database.endpoint.is_some() {
        // Its password may be newer than the server that ran here last.
        query::enable_reader_login(&database.options).await.map_err(|error| error::unreachable(&error))?;
    }
    let options = database.reader(&role);
    let reader = Reader { options, role, timeout: Duration::from_secs(args.timeout) };
    match text {
        Some(text) => ask(&reader, text, args.format).await,
        None => psql::open(database, &reader, &args.data).await,
    }
}

/// The role that sees one principal's rows. Does not migrate the database.
async fn scoped(database: &Database, iss: &str, sub: &str) -> anyhow::Result<String> {
    let given = Secrets::read()?.pepper;
    let kept = pepper::kept(&database.options, given.as_deref()).await.map_err(error::unscoped)?;
    // If no server has initialized a pepper, no principal has any data.
    let owner = OwnerId::derive(&kept.or(given).unwrap_or_default(), iss, sub);
    let role = query::scoped_reader(&database.options, &owner, database.endpoint.is_some()).await;
    role.map_err(error::unscoped)
}

async fn ask(reader: &Reader, text: String, format: Format) -> anyhow::Result<ExitCode> {
    let mut form = match format {
        Format::Table => Form::Table(Drawn::default()),
        Format::Csv => Form::Csv(Csv::default()),
        Format::Json => Form::Json(Json::array()),
        Format::Ndjson => Form::Json(Json::lines()),
    };
    let count = match query::ask(reader, text, &mut form).await {
        Ok(count) => count,
        Err(Failed::RowSink(error)) => return Err(error.into()),
        Err(Failed::Rule(rule)) => return Err(CliError::failed(rule).into()),
        Err(Failed::Connection(error)) => return Err(error::unreachable(&error).into()),
        Err(Failed::Database(error)) => return Err(error::unanswered(&error).into()),
    };
    form.finish()?;
    say(format!("{count} row{}", if count == 1 { "" } else { "s" }));
    Ok(ExitCode::SUCCESS)
}
