//! psql in the terminal, with the settings of a reader.

use std::{path::PathBuf, process::ExitCode};

use sqlx::ConnectOptions as _;

use crate::{
    cli::exit::CliError,
    config::{self, DataArgs},
    database::Database,
    postgres,
    store::query::Reader,
};

/// psql as the reading role, for interactive use.
pub(super) async fn open(database: &Database, reader: &Reader, data: &DataArgs) -> anyhow::Result<ExitCode> {
    let found = match data.postgres() {
        Ok(options) => postgres::client("psql", &options).await,
        Err(_) => None,
    };
    let mut psql = tokio::process::Command::new(found.unwrap_or_else(|| PathBuf::from("psql")));
    let settings: Vec<String> = reader.settings().iter().map(|(name, value)| format!("-c {name}={value}")).collect();
    if let Some(endpoint) = &database.endpoint {
        for name in config::libpq::variables() {
            psql.env_remove(name);
        }
        psql.arg("-h").arg(&endpoint.socket_dir).arg("-p").arg(endpoint.port.to_string());
        psql.arg("-U").arg(&reader.role).arg("-d").arg(&endpoint.database);
        psql.env("PGPASSWORD", endpoint.password.expose());
    } else {
        // Some poolers refuse the startup parameter with the settings, others drop it.
        let refuses = |error: &sqlx::Error| error.to_string().contains("startup parameter");
        match reader.suits_psql().await {
            Ok(true) => {}
            Err(error) if !refuses(&error) => return Err(super::error::unreachable(&error).into()),
            _ => {
                return Err(CliError::failed(
                    "the pooler in front of the database drops or refuses the settings of psql, which would have all \
                     rights there; give the URL of Postgres itself, or pass the query as an argument",
                )
                .into());
            }
        }
        // In variables, not in arguments, which are visible in the list of processes.
        let options = &database.options;
        psql.env("PGHOST", options.get_host())
            .env("PGPORT", options.get_port().to_string())
            .env("PGUSER", options.get_username())
            .env("PGDATABASE", options.get_database().unwrap_or_default())
            .env("PGPASSWORD", password(options));
    }
    psql.env("PGOPTIONS", settings.join(" "));
    psql.kill_on_drop(true);
    let status = psql.status().await.map_err(|_| {
        CliError::failed("psql is not installed; pass the query as an argument, or install postgresql-client")
    })?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The password of a URL, decoded.
fn password(options: &sqlx::postgres::PgConnectOptions) -> String {
    let url = options.to_url_lossy();
    // The URL escapes it as a query string does, so the parser of query strings decodes it.
    let query = format!("runreel:?password={}", url.password().unwrap_or_default().replace('+', "%2B"));
    let read = reqwest::Url::parse(&query).ok();
    read.and_then(|url| url.query_pairs().next().map(|(_, value)| value.into_owned())).unwrap_or_default()
}
