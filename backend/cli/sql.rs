//! `runreel sql`: a question to the log.

use std::{
    io::{IsTerminal, Read},
    process::ExitCode,
    time::Duration,
};

use clap::ValueEnum;
use comfy_table::{Table as Drawn, presets};
use sqlx::ConnectOptions as _;

use super::{
    exit::Complaint,
    render::{clean, print, say},
};
use crate::{
    config::DataArgs,
    database::Database,
    store::query::{self, Table},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The views runs, run_events, spans, tool_calls, node_durations, messages, token_usage, sessions, threads and artifacts
are described in docs/sql.md. Without a query, one is read from stdin; on a terminal psql opens.

Examples:
  runreel sql \"select type, count(*) from run_events group by 1 order by 2 desc\"
  runreel sql --format csv \"select name, avg(duration_ms) from tool_calls group by 1\" > tools.csv")]
pub(super) struct Args {
    /// One SELECT. It runs read-only.
    query: Option<String>,
    /// How the answer is written.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// How long the query may run, seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table for people.
    Table,
    /// RFC 4180.
    Csv,
    /// One JSON object per row, values as text.
    Ndjson,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let timeout = Duration::from_secs(args.timeout);
    let text = match args.query {
        Some(text) => Some(text),
        None if std::io::stdin().is_terminal() => None,
        None => {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text)?;
            Some(text)
        }
    };
    let database = Database::visit(&args.data).await?;
    let done = match text {
        Some(text) => ask(&database, text, timeout, args.format).await,
        None => open(&database, timeout).await,
    };
    database.leave().await?;
    done
}

async fn ask(database: &Database, text: String, timeout: Duration, format: Format) -> anyhow::Result<ExitCode> {
    let table = query::run(&database.reader(), text, timeout).await.map_err(|error| explain(&error))?;
    let text = match format {
        Format::Table => drawn(&table),
        Format::Csv => csv(&table),
        Format::Ndjson => ndjson(&table),
    };
    print(&text)?;
    let rows = table.rows.len();
    say(format!("{rows} row{}", if rows == 1 { "" } else { "s" }));
    Ok(ExitCode::SUCCESS)
}

fn explain(error: &sqlx::Error) -> Complaint {
    if let sqlx::Error::InvalidArgument(rule) = error {
        return Complaint::failed(rule.clone());
    }
    let Some(database) = error.as_database_error() else {
        return Complaint {
            code: 3,
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
async fn open(database: &Database, timeout: Duration) -> anyhow::Result<ExitCode> {
    let options: Vec<String> =
        query::reader(timeout).iter().map(|(name, value)| format!("-c {name}={value}")).collect();
    let mut psql = tokio::process::Command::new("psql");
    psql.env("PGOPTIONS", options.join(" "));
    if let Some(endpoint) = &database.endpoint {
        psql.arg("-h")
            .arg(&endpoint.socket_dir)
            .arg("-p")
            .arg(endpoint.port.to_string())
            .arg("-U")
            .arg("runreel_reader")
            .arg("-d")
            .arg(&endpoint.database)
    } else {
        // By variables, not by arguments: those show in the list of processes.
        let options = &database.options;
        psql.env("PGHOST", options.get_host())
            .env("PGPORT", options.get_port().to_string())
            .env("PGUSER", options.get_username())
            .env("PGDATABASE", options.get_database().unwrap_or_default())
            .env("PGPASSWORD", password(options))
    };
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

fn drawn(table: &Table) -> String {
    let mut drawn = Drawn::new();
    drawn.load_style(presets::NOTHING).set_header(table.columns.iter().map(|name| clean(name)));
    for row in &table.rows {
        drawn.add_row(row.iter().map(|cell| cell.as_deref().map_or_else(|| "·".to_owned(), clean)));
    }
    format!("{drawn}\n")
}

/// RFC 4180: a field with a comma, a quote or a line break stands in quotes, and a quote is doubled.
fn csv(table: &Table) -> String {
    let field = |text: &str| {
        let quoted = text.contains([',', '"', '\n', '\r']);
        if quoted { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
    };
    let line = |cells: Vec<String>| cells.join(",") + "\r\n";
    let head = line(table.columns.iter().map(|name| field(name)).collect());
    let rows = table.rows.iter();
    let rows = rows.map(|row| line(row.iter().map(|cell| cell.as_deref().map(field).unwrap_or_default()).collect()));
    head + &rows.collect::<String>()
}

fn ndjson(table: &Table) -> String {
    let object = |row: &Vec<Option<String>>| {
        let members: serde_json::Map<String, serde_json::Value> =
            table.columns.iter().cloned().zip(row.iter().map(|cell| serde_json::json!(cell))).collect();
        serde_json::to_string(&members).unwrap_or_default() + "\n"
    };
    table.rows.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_would_break_a_line() {
        let table = Table {
            columns: vec!["a".to_owned(), "b,c".to_owned()],
            rows: vec![vec![Some("say \"hi\"".to_owned()), None], vec![Some("x\ny".to_owned()), Some("1".to_owned())]],
        };
        assert_eq!(csv(&table), "a,\"b,c\"\r\n\"say \"\"hi\"\"\",\r\n\"x\ny\",1\r\n");
    }
}
