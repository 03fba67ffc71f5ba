//! Selects the database a command works on: the operator's own, the embedded one that already runs, or the embedded
//! one, started for the command.

use std::{path::Path, str::FromStr, time::Duration};

use anyhow::Context as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::{
    config::DataArgs,
    postgres::{Cluster, Endpoint, running_endpoint},
};

/// A database to connect to, and the cluster if this process started it.
#[derive(Debug)]
pub struct Database {
    pub options: PgConnectOptions,
    pub cluster: Option<Cluster>,
    pub endpoint: Option<Endpoint>,
}

impl Database {
    /// For the server: starts the embedded cluster and owns it.
    pub async fn own(data: &DataArgs) -> anyhow::Result<Self> {
        if let Some(database) = Self::given(data)? {
            return Ok(database);
        }
        let cluster = Cluster::start(data.postgres()?).await?;
        let endpoint = cluster.endpoint().clone();
        Ok(Self { options: options(&endpoint), endpoint: Some(endpoint), cluster: Some(cluster) })
    }

    /// For a command: uses the cluster of a running server, and starts it only if no server runs it.
    pub async fn attach(data: &DataArgs) -> anyhow::Result<Self> {
        if let Some(database) = Self::given(data)? {
            return Ok(database);
        }
        match Self::running(&data.data_dir()?) {
            Some(database) => Ok(database),
            None => Self::own(data).await,
        }
    }

    fn given(data: &DataArgs) -> anyhow::Result<Option<Self>> {
        let Some(url) = data.database_url()? else { return Ok(None) };
        Ok(Some(Self { options: parsed(&url).context("DATABASE_URL")?, cluster: None, endpoint: None }))
    }

    /// The embedded database of a running server.
    pub fn running(data_dir: &Path) -> Option<Self> {
        let endpoint = running_endpoint(data_dir)?;
        Some(Self { options: options(&endpoint), endpoint: Some(endpoint), cluster: None })
    }

    /// How a user's own SQL query connects: on the embedded database as the reading role, which may log in there with
    /// the same password.
    pub fn reader(&self, role: &str) -> PgConnectOptions {
        let options = self.options.clone();
        if self.endpoint.is_some() { options.username(role) } else { options }
    }

    /// Stops the cluster if this process started it; after `max` immediately, which is as safe as a crash.
    pub async fn detach(self, max: Duration) -> anyhow::Result<()> {
        if let Some(cluster) = self.cluster {
            cluster.stop(max).await?;
        }
        Ok(())
    }
}

/// How to connect to an operator's own database.
pub fn parsed(url: &str) -> anyhow::Result<PgConnectOptions> {
    PgConnectOptions::from_str(url).map_err(|_| {
        anyhow::anyhow!("the URL of a database must look like postgres://user:password@host:port/database")
    })
}

/// Sets every option, so that no `PG…` variable of the environment has an effect. The driver cannot ignore `PGOPTIONS`,
/// so `config/libpq` removes it.
pub fn options(endpoint: &Endpoint) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .socket(&endpoint.socket_dir)
        .port(endpoint.port)
        .username(&endpoint.user)
        .password(endpoint.password.expose())
        .database(&endpoint.database)
        .application_name("runreel")
        .ssl_mode(PgSslMode::Disable)
}
