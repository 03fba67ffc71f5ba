//! Every setting: its variable, its default, its unit. The only module that reads the environment.
//!
//! A secret may come from a file instead: for each variable `X` below that contains one, `X_FILE` names the file.

pub mod channels;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Args, ValueEnum};
use reqwest::Url;

use self::retention::RetentionArgs;
use crate::domain::{
    cursor::LANES_MAX,
    limits::{DATABASE_WAIT_MS_DEFAULT, JOB_LEASE_MS_DEFAULT, JOB_LEASE_MS_MAX},
};

mod artifacts;
mod auth;
mod bounds;
mod check;
mod confined;
pub mod endpoint;
pub mod file;
pub mod libpq;
pub mod models;
mod network;
mod packaged;
pub mod retention;
mod seals;
pub mod secret;
pub mod sections;

pub use self::{
    artifacts::{ArtifactStore, BucketUrl, S3, S3Settings},
    auth::{Auth, AuthArgs, Provider},
    bounds::Bounds,
    file::File,
    network::{CorsOrigin, TlsArgs, TlsFiles, listen},
    seals::SealArgs,
    secret::{Secret, SecretSource},
};

/// An error in the configuration; the text also states what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

fn error(text: impl Into<String>) -> Error {
    Error(text.into())
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Where the data is. Shared by every command that opens the database itself.
#[derive(Clone, Debug, Args)]
pub struct DataArgs {
    /// Contains the embedded database, its log and its lock. Default: the platform's data directory (root:
    /// /var/lib/runreel).
    #[arg(long, env = "RUNREEL_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Your own Postgres, as postgres://user:password@host:port/database. Without it, an embedded one is started.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: Option<String>,
    /// The folder of the programs initdb and postgres. Default: those that were installed with this program by pip or
    /// npm, else those of the machine, detected in the usual places.
    #[arg(long, env = "RUNREEL_PG_BIN", value_name = "DIR")]
    pub pg_bin: Option<PathBuf>,
}

impl DataArgs {
    pub fn data_dir(&self) -> Result<PathBuf, Error> {
        if let Some(dir) = &self.data_dir {
            return Ok(dir.clone());
        }
        if rustix::process::geteuid().is_root() {
            return Ok(PathBuf::from("/var/lib/runreel"));
        }
        directories::ProjectDirs::from("", "", "runreel")
            .map(|dirs| dirs.data_dir().to_owned())
            .ok_or_else(|| error("no home directory for data; specify a directory with --data-dir"))
    }

    /// The folder of saved sessions: a given one, or `sessions/` in the data directory.
    pub fn sessions_dir(&self, given: Option<&PathBuf>) -> Result<PathBuf, Error> {
        given.map_or_else(|| Ok(self.data_dir()?.join("sessions")), |dir| Ok(dir.clone()))
    }

    /// The database's URL, from the flag, the variable or the file named by `DATABASE_URL_FILE`.
    pub fn database_url(&self) -> Result<Option<String>, Error> {
        match &self.database_url {
            Some(url) if !url.is_empty() => Ok(Some(url.clone())),
            _ => secret_from_file("DATABASE_URL"),
        }
    }

    /// How to find and start the embedded database.
    pub fn postgres(&self) -> Result<crate::postgres::Options, Error> {
        let program = std::env::current_exe().and_then(std::fs::canonicalize).ok();
        let path_env = packaged::search_path(program.as_deref(), path());
        Ok(crate::postgres::Options { data_dir: self.data_dir()?, pg_bin: self.pg_bin.clone(), path_env })
    }
}

/// `runreel serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// IP address and port, or a port of this machine alone; port 0 picks a free port and prints it.
    #[arg(long, env = "RUNREEL_LISTEN", default_value = "127.0.0.1:7717", value_parser = listen, value_name = "ADDR:PORT")]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub auth: AuthArgs,
    /// Origins whose pages may use the API and its streams in a browser, such as <https://app.example>; separated by
    /// commas or given several times. Default: only the server's own pages.
    #[arg(long, env = "RUNREEL_CORS_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    pub cors_origin: Vec<CorsOrigin>,
    /// Database connections for reading (each writer lane, the notification listener and the relay have their own).
    #[arg(long, env = "RUNREEL_DB_CONNECTIONS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub db_connections: u32,
    /// A read replica of your own Postgres, as postgres://user:password@host:port/database: pages of events, exports and
    /// queries are read there while it is not behind what anybody has seen.
    #[arg(long, env = "RUNREEL_REPLICA_URL", hide_env_values = true, value_name = "URL")]
    pub replica_url: Option<String>,
    /// How long a starting server waits for a database that is not up yet, milliseconds.
    #[arg(long, env = "RUNREEL_DATABASE_WAIT_MS", default_value_t = DATABASE_WAIT_MS_DEFAULT, value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pub database_wait_ms: u64,
    /// Writer lanes of a new database; fixed once it has runs.
    #[arg(long, env = "RUNREEL_LANES", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=LANES_MAX as i64))]
    pub lanes: u8,
    /// Frames kept per topic for slow readers; readers further behind read the database.
    #[arg(long, env = "RUNREEL_BUS_FRAMES", default_value_t = crate::domain::limits::BUS_FRAMES_DEFAULT, value_name = "FRAMES")]
    pub bus_frames: usize,
    /// How often to poll for other processes' commits without a notification, milliseconds.
    #[arg(long, env = "RUNREEL_POLL_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub poll_ms: u64,
    /// A NATS server that brings tokens to readers of other servers at once, as <nats://user:password@host:4222>, or
    /// <tls://…>. Default: readers of other servers get them five times a second, through the database.
    #[arg(long, env = "RUNREEL_LIVE", hide_env_values = true, value_name = "URL")]
    pub live: Option<String>,
    /// States that the database was restored from a backup: from then on, readers' cursors beyond it are rejected. Use
    /// it at the first start afterwards, when the server cannot detect this by itself.
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub new_history: bool,
    /// How long an executor or a runner may be silent before its runs are assigned to another, milliseconds.
    #[arg(long, env = "RUNREEL_LEASE_MS", default_value_t = JOB_LEASE_MS_DEFAULT, value_parser = clap::value_parser!(u64).range(500..=JOB_LEASE_MS_MAX))]
    pub lease_ms: u64,
    #[command(flatten)]
    pub bounds: Bounds,
    #[command(flatten)]
    pub retention: RetentionArgs,
    #[command(flatten)]
    pub seals: SealArgs,
    /// The folder of the artifacts' bytes. Default: with the embedded database, the folder that it was used with last;
    /// else artifacts/ of the data directory or of the working directory, the first that is there.
    #[arg(long, env = "RUNREEL_ARTIFACTS_DIR", value_name = "DIR")]
    pub artifacts_dir: Option<PathBuf>,
    /// A bucket for the artifacts' bytes instead of a folder, such as <s3://bucket/prefix>.
    #[arg(long, env = "RUNREEL_ARTIFACT_STORE", value_name = "URL")]
    pub artifact_store: Option<BucketUrl>,
    /// The folder of saved sessions. Default: sessions/ in the data directory.
    #[arg(long, env = "RUNREEL_SESSIONS_DIR", value_name = "DIR")]
    pub sessions_dir: Option<PathBuf>,
    /// A TOML file with sections for models, tools, mcp, agents and channels.
    #[arg(long, env = "RUNREEL_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Base URL of the Telegram Bot API.
    #[arg(long, env = "RUNREEL_TELEGRAM_API_BASE", default_value = "https://api.telegram.org", value_name = "URL")]
    pub telegram_api_base: String,
    /// The format of log lines.
    #[arg(long, env = "RUNREEL_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// The secrets, read once at startup.
#[derive(Clone, Default)]
pub struct Secrets {
    /// `RUNREEL_JWT_SECRET`, at least 32 bytes.
    pub jwt_secret: Option<Vec<u8>>,
    /// `RUNREEL_PEPPER`, at least 16 bytes; without it, one is generated and stored in the database.
    pub pepper: Option<Vec<u8>>,
    /// `RUNREEL_S3_…`; each may come from a file.
    pub s3: S3Settings,
    /// `RUNREEL_TELEGRAM_BOT_TOKEN`, as issued by `BotFather`.
    pub telegram_bot_token: Option<String>,
    /// `RUNREEL_TELEGRAM_WEBHOOK_SECRET`, the `secret_token` of `setWebhook`; at least 16 bytes.
    pub telegram_webhook_secret: Option<String>,
}

impl Secrets {
    pub fn read() -> Result<Self, Error> {
        let text = |secret: Option<Vec<u8>>| secret.map(|secret| String::from_utf8_lossy(&secret).into_owned());
        Ok(Self {
            jwt_secret: secret("RUNREEL_JWT_SECRET", 32)?,
            pepper: secret("RUNREEL_PEPPER", 16)?,
            s3: S3Settings::read()?,
            telegram_bot_token: text(secret("RUNREEL_TELEGRAM_BOT_TOKEN", 1)?),
            telegram_webhook_secret: text(secret("RUNREEL_TELEGRAM_WEBHOOK_SECRET", 16)?),
        })
    }
}

impl Secrets {
    /// What may be shown of them, by the variable's name without its prefix.
    fn shown(&self) -> [(&'static str, String); 8] {
        let set = |is_set| if is_set { "(set, not shown)" } else { "(not set)" }.to_owned();
        let s3 = &self.s3;
        [
            ("jwt_secret", set(self.jwt_secret.is_some())),
            ("pepper", set(self.pepper.is_some())),
            ("s3_endpoint", s3.endpoint.as_deref().map_or_else(|| "(Amazon's)".to_owned(), mask)),
            ("s3_region", s3.region.clone().unwrap_or_else(|| "us-east-1".to_owned())),
            ("s3_access_key_id", set(s3.access_key_id.is_some())),
            ("s3_secret_access_key", set(s3.secret_access_key.is_some())),
            ("telegram_bot_token", set(self.telegram_bot_token.is_some())),
            ("telegram_webhook_secret", set(self.telegram_webhook_secret.is_some())),
        ]
    }
}

impl ServeArgs {
    /// Rejects settings that are unsafe or cannot work.
    pub fn check(&self, secrets: &Secrets) -> Result<(), Error> {
        let file = self.file()?;
        file.channels()?.check_owners(self.auth.auth, secrets)?;
        if let Some(agent) = file.open_shell().filter(|_| self.auth.auth == Auth::Jwt) {
            return Err(error(format!(
                "[agents.{agent}] has a shell, and with --auth jwt everyone with a credential could use it: list who \
                 may, with allow = [\"SUB\"] in its section"
            )));
        }
        self.artifact_store(secrets)?;
        self.live()?;
        match self.auth.auth {
            Auth::Off if !is_loopback(self.listen.ip()) => Err(error(format!(
                "--auth off requires a loopback address, and {} is not one: listen on 127.0.0.1, or use --auth jwt",
                self.listen.ip()
            ))),
            _ => self.auth.check(secrets.jwt_secret.is_some()),
        }
    }

    /// The folder of saved sessions.
    pub fn sessions_dir(&self) -> Result<PathBuf, Error> {
        self.data.sessions_dir(self.sessions_dir.as_ref())
    }

    /// The configuration file, checked; an empty one if none is given.
    pub fn file(&self) -> Result<File, Error> {
        self.config.as_deref().map_or_else(|| Ok(File::default()), File::read)
    }

    /// Every effective value with the variable that sets it, as it was given in `matches`, by a variable or by default.
    /// For secrets, only whether they are set.
    pub fn effective(&self, matches: &ArgMatches, secrets: &Secrets) -> Result<Vec<(String, String, String)>, Error> {
        let mut derived = self.derived(secrets)?;
        let command = Self::augment_args(clap::Command::new("serve"));
        let mut rows = Vec::new();
        for flag in command.get_arguments() {
            let (name, Some(variable)) = (flag.get_id().as_str(), flag.get_env()) else { continue };
            let given = || {
                let values = matches.get_raw(name).filter(|_| !flag.is_hide_env_values_set())?;
                Some(values.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(","))
            };
            let value = derived.remove(name).or_else(given).filter(|value| !value.is_empty());
            let absent = match name {
                "jwt_issuer" | "jwt_audience" => "(any)",
                "run_ttl" | "thread_ttl" => "(forever)",
                _ => "(not set)",
            };
            let value = value.unwrap_or_else(|| absent.to_owned());
            rows.push((name.to_owned(), variable.to_string_lossy().into_owned(), value));
        }
        let secrets = secrets.shown().into_iter();
        rows.extend(secrets.map(|(name, value)| (name.to_owned(), format!("RUNREEL_{}", name.to_uppercase()), value)));
        Ok(rows)
    }

    /// Values that are not what was given: found elsewhere, completed, or with a password in them.
    fn derived(&self, secrets: &Secrets) -> Result<BTreeMap<&'static str, String>, Error> {
        let path = |path: PathBuf| path.display().to_string();
        let url = |url: Option<String>| url.map(|url| mask(&url));
        let (folder, bucket) = match self.artifact_store(secrets)? {
            ArtifactStore::Folder(dir) => (path(dir), None),
            ArtifactStore::Bucket(s3) => ("(not used)".to_owned(), Some(format!("s3://{}/{}", s3.bucket, s3.prefix))),
        };
        let rows = [
            ("listen", Some(self.listen.to_string())),
            ("data_dir", Some(path(self.data.data_dir()?))),
            ("database_url", Some(url(self.data.database_url()?).unwrap_or_else(|| "(embedded)".to_owned()))),
            ("pg_bin", Some(self.data.pg_bin.clone().map_or_else(|| "(detected)".to_owned(), path))),
            ("replica_url", url(self.replica_url()?)),
            ("live", self.live()?.map(|_| "(set, not shown)".to_owned())),
            ("artifacts_dir", Some(folder)),
            ("artifact_store", bucket),
            ("sessions_dir", Some(path(self.sessions_dir()?))),
        ];
        // An empty text for what is not set: what was given is never shown.
        Ok(rows.into_iter().map(|(name, value)| (name, value.unwrap_or_default())).collect())
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.is_loopback()
}

/// A URL with its password masked and without its query, which may have one too.
fn mask(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return "(set, not shown)".to_owned() };
    url.set_query(None);
    if url.password().is_some() && url.set_password(Some("***")).is_err() {
        return "(set, not shown)".to_owned();
    }
    url.into()
}

/// The value of `PATH`.
pub fn path() -> Option<OsString> {
    variable_os("PATH")
}

/// The value of a variable, if it is set and not empty.
#[expect(clippy::disallowed_methods, reason = "the one file that reads the environment")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[expect(clippy::disallowed_methods, reason = "the one file that reads the environment")]
fn variable_os(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The variables that configure this program, including tokens, keys and the database: no other program needs them.
#[expect(clippy::disallowed_methods, reason = "the one file that reads the environment")]
pub fn own_variables() -> Vec<OsString> {
    let is_own = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("RUNREEL_") || name.starts_with("DATABASE_URL")
    };
    std::env::vars_os().map(|(name, _)| name).filter(is_own).collect()
}

fn secret(name: &str, bytes_min: usize) -> Result<Option<Vec<u8>>, Error> {
    let value = match variable(name) {
        Some(value) => Some(value),
        None => secret_from_file(name)?,
    };
    match value {
        Some(value) if value.len() < bytes_min => {
            Err(error(format!("{name} is shorter than {bytes_min} bytes; generate one with: openssl rand -hex 32")))
        }
        value => Ok(value.map(String::into_bytes)),
    }
}

/// The content of the file named by the variable `<name>_FILE`.
pub fn secret_from_file(name: &str) -> Result<Option<String>, Error> {
    let Some(path) = variable(&format!("{name}_FILE")) else { return Ok(None) };
    read_secret(Path::new(&path)).map(Some)
}

/// The content of a secret's file without the trailing line break.
pub fn read_secret(path: &Path) -> Result<String, Error> {
    Ok(read_text(path, "the secret file")?.trim_end_matches(['\r', '\n']).to_owned())
}

#[expect(clippy::disallowed_methods, reason = "configuration comes from files too")]
fn read_text(path: &Path, what: &str) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|cause| error(format!("cannot read {what} {}: {cause}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_no_password() {
        assert_eq!(mask("postgres://bob:s3cret@db:5432/runs?password=x"), "postgres://bob:***@db:5432/runs");
        assert_eq!(mask("postgres://bob:p@ss@db/runs"), "postgres://bob:***@db/runs");
        assert_eq!(mask("postgres://db/runs"), "postgres://db/runs");
        assert_eq!(mask("postgres://db/runs?user=u&password=p@ss"), "postgres://db/runs");
        assert_eq!(mask("host=db password=s3cret"), "(set, not shown)");
    }
}
