//! `runreel doctor`: each line a check, and what mends it.

use std::{process::ExitCode, time::Duration};

use anstyle::{AnsiColor, Style};
use sqlx::Connection as _;

use super::{connection::Connection, render::print};
use crate::{
    client::Notice,
    config::{DataArgs, Secrets},
    database::Database,
    postgres,
};

/// How long a check may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits 0 when every check passes, 1 otherwise. A check that cannot be made is shown as such and does not fail."
)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    connection: Connection,
    /// One JSON object per check.
    #[arg(long)]
    json: bool,
}

enum Outcome {
    Good(String),
    Bad(String, &'static str),
    /// Not applicable now, with the reason.
    Open(String),
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut all_good = true;
    let checks: [(&str, Outcome); 7] = [
        ("configuration", secrets()),
        ("descriptors", descriptors()),
        ("data directory", data_dir(&args.data)),
        ("postgres programs", programs(&args.data).await),
        ("database", database(&args.data).await),
        ("server", server(&args.connection).await),
        ("stream", stream(&args.connection).await),
    ];
    for (name, outcome) in checks {
        all_good &= !matches!(outcome, Outcome::Bad(..));
        print(&if args.json { as_json(name, &outcome) } else { as_line(name, &outcome) })?;
    }
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_line(name: &str, outcome: &Outcome) -> String {
    let (sign, color, text, remedy) = match outcome {
        Outcome::Good(text) => ("✓", AnsiColor::Green, text, None),
        Outcome::Bad(text, remedy) => ("✗", AnsiColor::Red, text, Some(*remedy)),
        Outcome::Open(text) => ("·", AnsiColor::BrightBlack, text, None),
    };
    let style = Style::new().fg_color(Some(color.into()));
    let remedy = remedy.map_or_else(String::new, |remedy| format!("  → {remedy}\n"));
    format!("{style}{sign}{style:#} {name:<18} {text}\n{remedy}")
}

fn as_json(name: &str, outcome: &Outcome) -> String {
    let (state, text, remedy) = match outcome {
        Outcome::Good(text) => ("good", text, None),
        Outcome::Bad(text, remedy) => ("bad", text, Some(*remedy)),
        Outcome::Open(text) => ("open", text, None),
    };
    serde_json::json!({ "check": name, "state": state, "detail": text, "remedy": remedy }).to_string() + "\n"
}

fn secrets() -> Outcome {
    match Secrets::read() {
        Ok(_) => Outcome::Good("the environment is consistent".to_owned()),
        Err(error) => Outcome::Bad(error.to_string(), "mend the variable and try again"),
    }
}

fn descriptors() -> Outcome {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if limit < 4_096 => Outcome::Bad(
            format!("this shell allows {limit} open files, and every stream needs one"),
            "ulimit -n 65536, or LimitNOFILE= in the service's unit",
        ),
        Some(limit) => Outcome::Good(format!("{limit} open files allowed")),
        None => Outcome::Good("no limit of open files".to_owned()),
    }
}

fn data_dir(data: &DataArgs) -> Outcome {
    let dir = match data.data_dir() {
        Ok(dir) => dir,
        Err(error) => return Outcome::Bad(error.to_string(), "name a folder with --data-dir"),
    };
    let existing = dir.ancestors().find(|dir| dir.exists()).map(std::path::Path::to_owned).unwrap_or_default();
    let writable = rustix::fs::access(&existing, rustix::fs::Access::WRITE_OK).is_ok();
    if writable {
        Outcome::Good(format!("{} can be written", dir.display()))
    } else {
        Outcome::Bad(
            format!("{} cannot be written", dir.display()),
            "name another with --data-dir, or change its owner",
        )
    }
}

async fn programs(data: &DataArgs) -> Outcome {
    match data.database_url() {
        Ok(Some(_)) => return Outcome::Open("not needed: DATABASE_URL is set".to_owned()),
        Err(error) => return Outcome::Bad(error.to_string(), "mend the variable and try again"),
        Ok(None) => {}
    }
    let options = match data.postgres() {
        Ok(options) => options,
        Err(error) => return Outcome::Bad(error.to_string(), "name a folder with --data-dir"),
    };
    match postgres::programs(&options).await {
        Ok(found) => Outcome::Good(found),
        Err(error) => Outcome::Bad(error.to_string(), "apt-get install postgresql, or --pg-bin DIR, or DATABASE_URL"),
    }
}

async fn database(data: &DataArgs) -> Outcome {
    let running = data.data_dir().ok().and_then(|dir| Database::running(&dir));
    let options = match data.database_url() {
        Ok(Some(url)) => match url.parse::<sqlx::postgres::PgConnectOptions>() {
            Ok(options) => options,
            Err(_) => {
                return Outcome::Bad(
                    "DATABASE_URL is malformed".to_owned(),
                    "postgres://user:password@host:port/database",
                );
            }
        },
        _ => match running {
            Some(database) => database.options,
            None => return Outcome::Open("the embedded database is not running; runreel serve starts it".to_owned()),
        },
    };
    let look = async {
        let mut connection = sqlx::PgConnection::connect_with(&options).await?;
        let version: String = sqlx::query_scalar("show server_version").fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(version)
    };
    match tokio::time::timeout(PATIENCE, look).await {
        Ok(Ok(version)) => Outcome::Good(format!("Postgres {version} answers")),
        Ok(Err(_)) => Outcome::Bad(
            "the database refuses the connection".to_owned(),
            "check DATABASE_URL: host, port, user, password",
        ),
        Err(_) => {
            Outcome::Bad("the database does not answer".to_owned(), "is it running, and is it reachable from here?")
        }
    }
}

async fn server(connection: &Connection) -> Outcome {
    let client = match connection.client() {
        Ok(client) => client,
        Err(error) => return Outcome::Bad(error.to_string(), "mend --url or the token's variable"),
    };
    match tokio::time::timeout(PATIENCE, client.get_json("/livez")).await {
        Ok(Ok(health)) if client.ready().await => {
            let version = health["version"].as_str().unwrap_or("?").to_owned();
            Outcome::Good(format!("{} is ready, version {version}", connection.url))
        }
        Ok(Ok(_)) => Outcome::Bad(
            format!("{} lives but is not ready", connection.url),
            "look at its log: the database is away, or it drains",
        ),
        _ => Outcome::Open(format!("no server at {}; runreel serve starts one", connection.url)),
    }
}

/// Whether a stream's first frame comes at once: a proxy that buffers would hold it back.
async fn stream(connection: &Connection) -> Outcome {
    let Ok(client) = connection.client() else { return Outcome::Open("no server to ask".to_owned()) };
    if !client.ready().await {
        return Outcome::Open("no server to ask".to_owned());
    }
    let began = tokio::time::Instant::now();
    let mut follow = client.follow("/api/stream/runs?tail=0", None);
    let first = async {
        loop {
            match follow.next().await {
                Some(Ok(Notice::Frame(frame))) if frame.event == "stream.caught_up" => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err("the stream ended".to_owned()),
            }
        }
    };
    match tokio::time::timeout(PATIENCE, first).await {
        Ok(Ok(())) => Outcome::Good(format!("the first frame came after {} ms", began.elapsed().as_millis())),
        Ok(Err(error)) => Outcome::Bad(error, "set RUNREEL_TOKEN to a token with the scope read"),
        Err(_) => Outcome::Bad(
            "no frame came within 5 s: something between holds the stream back".to_owned(),
            "turn off buffering and compression for text/event-stream in the proxy",
        ),
    }
}
