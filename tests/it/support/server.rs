//! A server in this process, on its own port, with the test's database.

use std::{ops::Deref, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use clap::Parser;
use runreel::{
    app::App,
    clock::{Clock, IdSource},
    config::{Secrets, ServeArgs},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{api::Api, cluster::Db, patiently, show_log};

/// The flags of `serve`, as the command line reads them.
#[derive(Parser)]
pub struct Flags {
    #[command(flatten)]
    serve: ServeArgs,
}

/// A secret for JWTs.
pub const JWT_SECRET: &[u8] = b"a secret of at least thirty-two bytes";

/// How a server is to be set up.
#[derive(Clone)]
pub struct Setup {
    flags: Vec<String>,
    clock: Clock,
    secrets: Secrets,
    db: Option<Arc<Db>>,
    url: Option<String>,
    folder: Option<Arc<tempfile::TempDir>>,
}

pub fn setup() -> Setup {
    Setup { flags: Vec::new(), clock: Clock::System, secrets: Secrets::default(), folder: None, db: None, url: None }
}

/// Flags as `serve` would read them.
pub fn serve_args(flags: &[&str]) -> ServeArgs {
    Flags::try_parse_from(["serve"].iter().chain(flags)).unwrap().serve
}

impl Setup {
    /// Adds flags; the last one of a kind wins.
    #[must_use]
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// Works on an existing database.
    #[must_use]
    pub fn on(self, db: &Arc<Db>) -> Self {
        Self { db: Some(Arc::clone(db)), ..self }
    }

    /// Connects to it by another URL.
    #[must_use]
    pub fn through(self, url: String) -> Self {
        Self { url: Some(url), ..self }
    }

    #[must_use]
    pub fn clock(self, clock: &Clock) -> Self {
        Self { clock: clock.clone(), ..self }
    }

    /// With this configuration file, and a data directory beside it.
    #[must_use]
    pub fn config(mut self, text: &str) -> Self {
        let folder = self.folder.take().unwrap_or_else(|| Arc::new(tempfile::tempdir().unwrap()));
        let (file, data) = (folder.path().join("runreel.toml"), folder.path().join("data"));
        std::fs::write(&file, text).unwrap();
        self.folder = Some(folder);
        self.flags(&["--config", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()])
    }

    /// With a Telegram bot whose API is at this address.
    #[must_use]
    pub fn telegram(mut self, api_base: &str) -> Self {
        self.secrets.telegram_bot_token = Some(super::telegram::BOT_TOKEN.to_owned());
        self.secrets.telegram_webhook_secret = Some(super::telegram::WEBHOOK_SECRET.to_owned());
        self.flags(&["--telegram-api-base", api_base])
    }

    /// The folder of [`Setup::config`].
    pub fn folder(&self) -> Arc<tempfile::TempDir> {
        Arc::clone(self.folder.as_ref().unwrap())
    }

    #[must_use]
    pub fn jwt(mut self) -> Self {
        self.secrets.jwt_secret = Some(JWT_SECRET.to_vec());
        self.flags(&["--auth", "jwt"])
    }

    pub async fn start(self) -> Server {
        show_log();
        let db = match self.db {
            Some(db) => db,
            None => Db::new().await,
        };
        let url = self.url.unwrap_or_else(|| db.url());
        let artifacts = db.artifacts.path().display().to_string();
        let saved = db.artifacts.path().join("saved").display().to_string();
        let data = db.data.path().display().to_string();
        let mut flags = vec![
            "--listen",
            "127.0.0.1:0",
            "--db-connections",
            "3",
            "--poll-ms",
            "200",
            "--database-url",
            url.as_str(),
            "--artifacts-dir",
            artifacts.as_str(),
            "--sessions-dir",
            saved.as_str(),
            "--data-dir",
            data.as_str(),
        ];
        for pair in self.flags.chunks(2) {
            // clap rejects a flag that is given twice.
            if let Some(at) = flags.iter().position(|flag| *flag == pair[0]) {
                flags.drain(at..at + 2);
            }
            flags.extend(pair.iter().map(String::as_str));
        }
        let (args, ids) = (serve_args(&flags), IdSource::random(self.clock.clone()));
        let app = patiently("a server", App::start_with(&args, &self.secrets, self.clock.clone(), ids)).await.unwrap();
        let base = format!("http://{}", app.address().unwrap());
        let (inner, stop) = (app.server().clone(), CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(app.run(async move { stopped.cancelled().await }));
        Server { api: Api::new(base), inner, clock: self.clock, db, stop, task: Some(task), _folder: self.folder }
    }
}

/// A running server. Calls go to it as [`Api`].
pub struct Server {
    pub api: Api,
    pub inner: runreel::http::Server,
    pub clock: Clock,
    pub db: Arc<Db>,
    stop: CancellationToken,
    task: Option<JoinHandle<anyhow::Result<()>>>,
    _folder: Option<Arc<tempfile::TempDir>>,
}

impl Server {
    /// A server with the defaults for most tests.
    pub async fn start() -> Self {
        setup().start().await
    }

    /// Begins the shutdown and does not wait for it.
    pub fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Shuts down and waits until it has ended.
    pub async fn stop(mut self) {
        self.begin_stop();
        let task = self.task.take().unwrap();
        patiently("the shutdown", task).await.unwrap().unwrap();
    }

    /// Advances the clock.
    pub fn pass(&self, time: Duration) {
        self.clock.advance(chrono::TimeDelta::from_std(time).unwrap());
    }
}

impl Deref for Server {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A clock that stays at the real time until it is moved; partitions exist for today.
pub fn manual_clock() -> Clock {
    let now: DateTime<Utc> = Clock::System.now();
    Clock::manual(now)
}
