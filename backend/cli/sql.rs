//! `runreel sql`: a question to the log.

mod forms;
mod values;

use std::{
    io::{IsTerminal, Read},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::ValueEnum;
use sqlx::ConnectOptions as _;

use self::forms::{Csv, Drawn, Form, Json};
use super::{
    exit::{Complaint, UNREACHABLE},
    render::say,
};
use crate::{
    clock::{Clock, IdSource},
    config::{DataArgs, Secrets},
    database::Database,
    domain::principal::OwnerId,
    postgres,
    store::{
        Settings, Store,
        query::{self, Failed, READER, Reader},
    },
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The views runs, run_events, spans, tool_calls, node_durations, messages, token_usage, interrupts, sessions, threads,
checkpoints and artifacts are described in docs/sql.md, with twenty questions. Without a query, one is read from stdin; on a
terminal psql opens.

Examples:
  runreel sql \"select type, count(*) from run_events group by 1 order by 2 desc\"
  runreel sql --format csv \"select name, avg(duration_ms) from tool_calls
      where run_id >= first_run_id(now() - interval '7 days') group by 1\" > tools.csv
  runreel sql --format json --sub bob \"select run_id, status, tags from runs\"    only what belongs to bob
  runreel sql                                                                    psql, where \\d+ runs explains")]
pub(super) struct Args {
    /// One SELECT. It runs read-only.
    query: Option<String>,
    /// How the answer is written.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// How long the query may run, seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
    /// Show only what belongs to this subject (a JWT's `sub`; `local` without authentication). Postgres sees to it.
    #[arg(long)]
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
    /// One JSON array of objects; numbers, booleans, json and arrays as such, the rest as text.
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
    let database = Database::visit(&args.data).await?;
    let done = answer(&args, &database, text).await;
    database.leave().await?;
    done
}

async fn answer(args: &Args, database: &Database, text: Option<String>) -> anyhow::Result<ExitCode> {
    let role = match &args.sub {
        Some(sub) => scoped(database, args.iss.as_deref().unwrap_or_default(), sub).await?,
        None => READER.to_owned(),
    };
    let options = database.reader(&role);
    let reader = Reader { options, role, timeout: Duration::from_secs(args.timeout) };
    match text {
        Some(text) => ask(&reader, text, args.format).await,
        None => open(database, &reader, &args.data).await,
    }
}

/// The role that sees one principal's rows.
async fn scoped(database: &Database, iss: &str, sub: &str) -> anyhow::Result<String> {
    let settings = Settings { options: database.options.clone(), connections_max: 1, lanes: 1 };
    let store = Store::connect(settings).await?;
    let ids = IdSource::random(Clock::System);
    let pepper = store.settle_pepper(Secrets::read()?.pepper.as_deref(), ids.secret()).await?;
    let role = store.scoped_reader(&OwnerId::derive(&pepper, iss, sub), database.endpoint.is_some()).await;
    store.close().await;
    Ok(role?)
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
        Err(Failed::Taker(error)) => return Err(error.into()),
        Err(Failed::Rule(rule)) => return Err(Complaint::failed(rule).into()),
        Err(Failed::Database(error)) => return Err(explain(&error).into()),
    };
    form.finish()?;
    say(format!("{count} row{}", if count == 1 { "" } else { "s" }));
    Ok(ExitCode::SUCCESS)
}

fn explain(error: &sqlx::Error) -> Complaint {
    let Some(database) = error.as_database_error() else {
        return Complaint {
            code: UNREACHABLE,
            what: "the database cannot be reached".to_owned(),
            hint: Some("runreel doctor".to_owned()),
        };
    };
    let hint = match database.code().as_deref() {
        Some("42501" | "25006") => Some("this command only reads; the views are described in docs/sql.md"),
        Some("42P01" | "42703") => Some("the views and their columns are described in docs/sql.md"),
        Some("57014") => Some("give it more time with --timeout, or ask for less"),
        Some("42601") => Some("one statement at a time"),
        _ => None,
    };
    Complaint { code: 1, what: database.message().to_owned(), hint: hint.map(str::to_owned) }
}

/// psql as the reading role, for somebody who wants to look around.
async fn open(database: &Database, reader: &Reader, data: &DataArgs) -> anyhow::Result<ExitCode> {
    let found = match data.postgres() {
        Ok(options) => postgres::client("psql", &options).await,
        Err(_) => None,
    };
    let mut psql = tokio::process::Command::new(found.unwrap_or_else(|| PathBuf::from("psql")));
    let settings: Vec<String> = reader.settings().iter().map(|(name, value)| format!("-c {name}={value}")).collect();
    psql.env("PGOPTIONS", settings.join(" "));
    if let Some(endpoint) = &database.endpoint {
        psql.arg("-h").arg(&endpoint.socket_dir).arg("-p").arg(endpoint.port.to_string());
        psql.arg("-U").arg(&reader.role).arg("-d").arg(&endpoint.database);
    } else {
        // By variables, not by arguments: those show in the list of processes.
        let options = &database.options;
        psql.env("PGHOST", options.get_host())
            .env("PGPORT", options.get_port().to_string())
            .env("PGUSER", options.get_username())
            .env("PGDATABASE", options.get_database().unwrap_or_default())
            .env("PGPASSWORD", password(options));
    }
    let status = psql.status().await.map_err(|_| {
        Complaint::failed("psql is not installed; give the query as an argument, or install postgresql-client")
    })?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The password of a URL, spelled out.
fn password(options: &sqlx::postgres::PgConnectOptions) -> String {
    let url = options.to_url_lossy();
    // The URL spells it with escapes; so does a query, and queries are read everywhere.
    let query = format!("runreel:?password={}", url.password().unwrap_or_default().replace('+', "%2B"));
    let read = reqwest::Url::parse(&query).ok();
    read.and_then(|url| url.query_pairs().next().map(|(_, value)| value.into_owned())).unwrap_or_default()
}
